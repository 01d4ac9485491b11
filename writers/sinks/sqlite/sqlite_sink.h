// SPDX-License-Identifier: Apache-2.0
// Writes records into the SQLite database monitor_metrics.db of the run directory (FORMAT.md). Each step is
// one transaction: all its rows are kept, or none. Kept rows survive the end of the process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "writers/queue/name_table.h"
#include "writers/queue/scope_table.h"
#include "writers/queue/sink.h"
#include "writers/sinks/known_rows.h"
#include "writers/sinks/resumed_samples.h"
#include "writers/sinks/sqlite/metrics_file.h"
#include "writers/sinks/sqlite/step_writer.h"

namespace gradmon {

class SqliteSink : public Sink {
 public:
  // `names` resolves the ids in the records; `rank` is the rank of all rows. Opens nothing yet. With
  // Resume::yes, skips rows of a step that the database already has; they are not lost. `scopes`: null if
  // unknown.
  SqliteSink(MetricsFile::Options file, std::shared_ptr<const NameTable> names, Rank rank,
             Resume resume = Resume::no, std::shared_ptr<const ScopeTable> scopes = nullptr);

  // The numbers of samples in the database of a directory: for all steps from `from` on, and for one step
  // before it. Changes no row. An error names the file.
  [[nodiscard]] static tl::expected<SamplesByStep, std::string> find_samples(
      const std::filesystem::path& directory, std::int64_t from);

  const char* name() const override { return "sqlite"; }
  void report_parts(OnPart on_part) override { on_part_ = std::move(on_part); }
  [[nodiscard]] tl::expected<void, SinkError> begin_revision(const Layout& layout) override;
  // A row whose target already has a row of that kind in that step is lost; the first one stays.
  [[nodiscard]] tl::expected<void, SinkError> write_step(Step step,
                                                         const std::vector<Record>& records) override;
  [[nodiscard]] tl::expected<void, SinkError> flush() override { return {}; }

 private:
  // The steps whose commit failed; it is unknown if they are kept.
  using Doubtful = std::vector<Step>;
  static constexpr std::size_t kMostDoubtful = 64;

  SqliteResult<std::uint64_t> write_or_look(Step step, const std::vector<Record>& records);
  SqliteResult<std::uint64_t> write_transaction(Step step, const std::vector<Record>& records);
  SqliteResult<std::uint64_t> write_rows(Step step, const std::vector<Record>& records);
  SqliteResult<void> open();
  SinkError error_of(const std::string& text, std::uint64_t rows_lost) const;
  SqliteResult<bool> is_kept(Step step);
  void close(const SqliteError& error);

  const Resume resume_;

  // Writer thread only.
  OnPart on_part_;  // null: parts are not reported
  MetricsFile file_;
  StepWriter rows_;                          // Keep after file_: its statements die first.
  std::optional<std::uint64_t> committing_;  // rows of the transaction whose commit was tried last
  Doubtful doubtful_;                        // counted as lost; the next transaction removes their rows
};

}  // namespace gradmon
