// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "tools/analyse/find/not_finite.h"
#include "tools/analyse/find/run_rows.h"
#include "tools/analyse/find/step_order.h"

namespace gradmon {

// A row with a value that is not finite. A value.
struct NotFinitePlace {
  StepOrder order;
  int rank = 0;
  Kind kind = Kind::other;
  std::int32_t vpp_stage = 0;
  std::string name;
  std::int32_t micro_step = -1;  // -1: the file has none
  NotFinite what = NotFinite::none;
  Field field = 0;
  double value = 0;  // of `field`
  std::string shape;
  std::string dtype;
  std::filesystem::path file;
  std::uint64_t line = 0;
};

struct FirstNotFinite {
  std::optional<NotFinitePlace> first;
  std::optional<NotFinitePlace> first_nan;  // may be `first`
  std::map<int, NotFinitePlace> by_rank;    // the first of each rank
  Extent extent;                            // rows long after the first NaN may not have been read
};

// Finds the first value of a job that is not finite, in the order of StepOrder. One thread.
class FirstNotFiniteFinder {
 public:
  static constexpr std::int64_t kStepsAfter = 4;

  // False: rows of this rank and kind with later steps need not be read. `file`: of the row.
  bool add(int rank, Kind kind, const Row& row, const std::filesystem::path& file);
  const FirstNotFinite& result() const { return result_; }

 private:
  void note(int rank, Kind kind, const Row& row, const NotFiniteField& found,
            const std::filesystem::path& file);

  FirstNotFinite result_;
};

// Reads the run as far as it is needed.
FirstNotFinite find_first_not_finite(const Run& run, Problems& problems);

}  // namespace gradmon
