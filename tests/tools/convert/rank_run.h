// SPDX-License-Identifier: Apache-2.0
// The databases of a run, as its ranks write them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/writers/sample_records.h"
#include "writers/sinks/sqlite_sink.h"

namespace gradmon {

// One rank of a run, which writes its database.
class RankWriter {
 public:
  explicit RankWriter(const std::filesystem::path& output_dir, int rank,
                      const std::string& run_id = "8c0ffee0", JournalMode journal = JournalMode::wal)
      : directory_(output_dir / ("Nov24_08-30-12-rank" + std::to_string(rank) + "-" + run_id)), rank_(rank) {
    std::filesystem::create_directories(directory_);
    MetricsFile::Options options;
    options.directory = [directory = directory_] { return directory; };
    options.journal = [journal](const std::filesystem::path&) { return journal; };
    sink_ = std::make_unique<SqliteSink>(std::move(options), names_, Rank{rank});
    Layout layout;
    layout.revision = Revision{1};
    layout.ops = {Op::norm, Op::max};
    begun_ = sink_->begin_revision(layout).has_value();
  }

  const std::filesystem::path& directory() const { return directory_; }
  std::filesystem::path database() const { return directory_ / kMetricsFileName; }

  // A row of grad_reduced with norm step + rank / 100, and max 1.
  Record record(std::int64_t step, const std::string& target) {
    Record made = plain_record(step, 0);
    made.target = names_->intern(target);
    made.values[static_cast<std::size_t>(Op::norm)] = static_cast<double>(step) + rank_ / 100.0;
    made.values[static_cast<std::size_t>(Op::max)] = 1;
    made.mask = static_cast<ValueMask>(bit_of(Op::norm) | bit_of(Op::max));
    return made;
  }
  bool write(std::int64_t step, const std::vector<Record>& records) {
    return begun_ && sink_->write_step(Step{step}, records).has_value();
  }
  bool write(std::int64_t step, const std::vector<std::string>& targets) {
    std::vector<Record> records;
    for (const std::string& target : targets) records.push_back(record(step, target));
    return write(step, records);
  }

 private:
  const std::filesystem::path directory_;
  const int rank_;
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();
  std::unique_ptr<SqliteSink> sink_;
  bool begun_ = false;
};

}  // namespace gradmon
