// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/analyse/first_not_finite.h"
#include "tools/analyse/rows/row.h"
#include "tools/analyse/run_choice.h"

namespace gradmon {

// Two values part if they differ by more than `absolute` and, relative to the larger one, by more than
// `relative`. NaN equals NaN. The defaults ignore differences from rounding to 6 decimals.
struct Tolerance {
  double relative = 1e-5;
  double absolute = 1e-6;
};

// |a - b| / max(|a|, |b|); infinite if only one of them is finite, or both are infinite with other signs.
double relative_difference(double a, double b);
bool parts(double a, double b, const Tolerance& tolerance);

// A row whose values part, and the statistic with the largest relative difference.
struct Parting {
  StepOrder order;  // in A
  int rank = 0;
  Kind kind = Kind::other;
  std::string layer;
  std::int32_t micro_step = -1;
  Field field = 0;
  double a = 0;
  double b = 0;
  double difference = 0;       // relative
  std::filesystem::path file;  // of A
  std::uint64_t line = 0;
};

// The differences between two runs. A value.
struct Divergence {
  struct StepCount {
    std::uint64_t compared = 0;  // rows
    std::uint64_t parted = 0;
    std::unique_ptr<Parting> worst;  // with the largest relative difference; null if none parted
  };
  // Rows that only one of the runs has, and the place of the first one.
  struct Only {
    std::uint64_t rows = 0;
    std::int64_t step = -1;
    std::string what;  // "grad_reduced of fc1.weight on rank 3"
  };
  std::optional<Parting> first;
  std::map<int, Parting> by_rank;           // the first of each rank
  std::map<std::int64_t, StepCount> steps;  // by step: all steps with rows in both
  std::uint64_t compared = 0;               // rows
  std::uint64_t without_common = 0;         // rows in both without a common statistic
  Only only_a;
  Only only_b;
};

// Compares all rows of two runs by rank, kind, layer, step and micro step. Skips scalars of the clock, which
// differ in equal runs: iteration-time, throughput and its kin. Holds one step of one rank and kind in
// memory.
Divergence find_divergence(const Run& a, const Run& b, const Tolerance& tolerance, Problems& problems);

}  // namespace gradmon
