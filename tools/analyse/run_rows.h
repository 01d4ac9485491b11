// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <vector>

#include "tools/analyse/rows/kind_rows.h"
#include "tools/analyse/rows/problems.h"
#include "tools/analyse/rows/runs.h"

namespace gradmon {

// The amount of input read. A value.
struct Extent {
  std::uint64_t rows = 0;
  std::int64_t first_step = -1;  // -1: no row
  std::int64_t last_step = -1;
  std::set<int> ranks;  // with rows

  void add(int rank, const Row& row) {
    if (rows == 0 || row.step < first_step) first_step = row.step;
    if (row.step > last_step) last_step = row.step;
    if (ranks.empty() || last_rank_ != rank) ranks.insert(last_rank_ = rank);
    ++rows;
  }

 private:
  int last_rank_ = -1;
};

// Calls `each` with the files of every rank and kind, rank by rank.
using EachKind = std::function<void(int rank, Kind kind, const std::vector<KindFile>& files)>;
void each_kind(const Run& run, Problems& problems, const EachKind& each);

}  // namespace gradmon
