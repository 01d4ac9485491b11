// SPDX-License-Identifier: Apache-2.0
// Writes rows and histograms as event files of TensorBoard, in `tensorboard/` of the run's directory
// (FORMAT.md). It keeps no file open between steps, and no row beyond a call.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "writers/queue/name_table.h"
#include "writers/queue/sink.h"
#include "writers/sinks/earlier_output.h"
#include "writers/sinks/event_files.h"
#include "writers/sinks/row_encoder.h"

namespace gradmon {

class TensorBoardSink : public Sink {
 public:
  struct Settings {
    std::function<std::filesystem::path()> directory;  // of the run; begin_revision() calls it
    std::shared_ptr<const NameTable> names;            // resolves the ids in the rows
    Rank rank;
    std::string config;  // of the revision, written as text before its first row; "": none
    std::uint64_t most_bytes_of_a_file = EventFiles::kBytesOfAFile;
    Resume resume = Resume::no;  // yes: skips rows that an earlier process has written
  };

  explicit TensorBoardSink(Settings settings);

  const char* name() const override { return "tensorboard"; }
  void report_parts(OnPart on_part) override { on_part_ = std::move(on_part); }
  [[nodiscard]] tl::expected<void, SinkError> begin_revision(const Layout& layout) override;
  // After an error, the rest of the step is lost.
  [[nodiscard]] tl::expected<void, SinkError> write_step(Step step, const RecordBatch& records) override;
  bool keeps_histograms() const override { return true; }
  [[nodiscard]] tl::expected<void, SinkError> write_histograms(
      Step step, const std::vector<Histogram>& histograms) override;
  [[nodiscard]] tl::expected<void, SinkError> flush() override { return {}; }

 private:
  // A row is a Record or a Histogram.
  template <typename Rows>
  tl::expected<void, SinkError> write_rows(Step step, const Rows& rows);
  tl::expected<void, std::string> find_known_rows(Step step);
  void drop_known_events(std::int64_t step, std::size_t begin);
  std::string write_config(Step step, double wall_time);
  template <typename Rows>
  std::size_t encode(const Rows& rows, std::size_t begin, double wall_time);
  template <typename Rows>
  bool report(const Rows& rows, std::size_t begin, std::size_t end) const;

  const Settings settings_;

  // Writer thread only.
  OnPart on_part_;  // null: parts are not reported
  std::filesystem::path directory_;
  Revision revision_;
  bool config_written_ = false;
  std::optional<std::vector<KnownRows>> known_;  // of earlier processes; empty: not looked for yet
  std::optional<RowEncoder> encoder_;            // of the revision
  EventFiles files_;
  EventRows rows_;  // a part of a step, without known rows
};

}  // namespace gradmon
