// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <vector>

#include "tools/analyse/find/step_order.h"
#include "tools/analyse/rows/kind_rows.h"
#include "tools/analyse/rows/name_index.h"

namespace gradmon {

// A row of StepRows, without its texts.
struct StepRow {
  std::uint32_t name = 0;  // in the NameIndex
  std::int32_t micro_step = -1;
  std::uint32_t repetition = 0;  // how often name and micro step came before in the step
  std::array<double, kFields> values{};
  std::uint32_t mask = 0;
  StepOrder order;
  std::uint64_t line = 0;
  std::filesystem::path const* file = nullptr;  // valid until the next step is read
};
bool operator<(const StepRow& a, const StepRow& b);

// The rows of one kind and rank, step by step. One thread.
class StepRows {
 public:
  // All must outlive this object.
  StepRows(int rank, Kind kind, const std::vector<KindFile>& files, NameIndex& names, Problems& problems);
  StepRows(const StepRows&) = delete;
  StepRows& operator=(const StepRows&) = delete;

  // False at the end.
  bool next();
  std::int64_t step() const { return step_; }
  // Ascending by name, micro step and repetition.
  const std::vector<StepRow>& rows() const { return rows_; }

 private:
  void keep(const Row& row);
  void count_repetitions();

  const int rank_;
  const Kind kind_;
  NameIndex& names_;
  Problems& problems_;
  KindRows source_;
  const Row* ahead_ = nullptr;  // the first row of the next step; null at the end
  std::int64_t step_ = -1;
  std::vector<StepRow> rows_;
  std::deque<std::filesystem::path> files_;  // of the step's rows; entries never move
};

}  // namespace gradmon
