// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tools/analyse/rows/row.h"
#include "tools/analyse/rows/row_file.h"
#include "tools/convert/conversion_run.h"
#include "tools/convert/input_choice.h"

namespace gradmon {

// The rows of one kind and rank, from the files of all its starts, with ascending steps if they ascend in
// each file. If several starts of the job have collected a step, returns the rows of the last start and
// counts the others in the meter. A second row of a target in a step is a problem, and skipped. Skips rows
// without a value, and rows of more than kMaxTargets names and micro steps, which are a problem. Holds at
// most 64 descriptors at a time: opens further files for each block that is read. One thread.
class RankRows {
 public:
  static constexpr std::size_t kMaxTargets = 1'000'000;  // of names and micro steps

  // `files`: as from chosen_files(). All three must outlive this object.
  RankRows(const std::vector<InputFile>& files, ConversionMeter& meter, Problems& problems,
           std::size_t most_targets = kMaxTargets)
      : files_(files), meter_(meter), problems_(problems), most_targets_(most_targets) {}
  ~RankRows();
  RankRows(const RankRows&) = delete;
  RankRows& operator=(const RankRows&) = delete;

  // Null at the end, and after the meter was stopped. Valid until the next call.
  const Row* next();

  // For the last row: its target's number in names(), and the time of the last write to its file, in seconds
  // since 1970.
  std::uint32_t target() const { return target_; }
  double written() const { return open_[current_].written; }

  const NameIndex& names() const { return names_; }

 private:
  struct Open {
    std::unique_ptr<RowFile> file;
    std::size_t start = 0;
    double written = 0;
    Row row;  // not yet returned, except that of `current_`
  };

  bool advance();
  void open_due_files();
  void open_next_file();
  void choose();
  bool is_wanted(const Row& row);
  void problem(const Row& row, const std::string& text);

  const std::vector<InputFile>& files_;
  ConversionMeter& meter_;
  Problems& problems_;
  const std::size_t most_targets_;
  NameIndex names_;
  std::size_t next_file_ = 0;  // the first that was not opened yet
  std::vector<Open> open_;
  std::size_t current_ = 0;
  std::uint32_t target_ = 0;
  std::int64_t step_ = -1;                                      // of the last row
  std::size_t start_of_step_ = 0;                               // the start whose rows of `step_` are taken
  std::unordered_map<std::uint64_t, std::int64_t> last_steps_;  // by target and micro step
  std::uint64_t uncounted_ = 0;                                 // rows still missing in the meter
};

}  // namespace gradmon
