// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "tools/analyse/not_finite.h"
#include "tools/analyse/run_rows.h"
#include "tools/analyse/step_order.h"

namespace gradmon {

// A row with a value that is not finite. A value.
struct NotFinitePlace {
  StepOrder order;
  int rank = 0;
  Kind kind = Kind::other;
  std::int32_t vpp_stage = 0;
  std::string name;
  std::int32_t micro_step = -1;  // -1: missing in the file
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
  // Excluded from all these: tensors that hold an infinity (and no NaN) in every row from the first step of
  // their kind and rank on, as attention masks do. By rank, kind, vpp_stage and name.
  using Tensor = std::tuple<int, Kind, std::int32_t, std::string>;
  std::map<Tensor, NotFinitePlace> always_infinite;
  // True if the row holds a value that is not finite and not excluded.
  bool counts(int rank, Kind kind, const Row& row) const;
  Extent extent;  // rows long after the first NaN may not have been read
};

// Finds the first value of a job that is not finite, in the order of StepOrder. One thread.
class FirstNotFiniteFinder {
 public:
  static constexpr std::int64_t kStepsAfter = 4;

  // Returns false if rows of this rank and kind with later steps need not be read. `file`: of the row.
  bool add(int rank, Kind kind, const Row& row, const std::filesystem::path& file);
  const FirstNotFinite& result() const { return result_; }

 private:
  void note(const NotFinitePlace& place);
  bool goes_on(const Row& row) const;

  FirstNotFinite result_;
  int rank_ = -1;  // of the last row; so are:
  Kind kind_ = Kind::other;
  std::int64_t first_step_ = 0;  // of the rank's rows of this kind
};

// Reads as much of the run as needed.
FirstNotFinite find_first_not_finite(const Run& run, Problems& problems);

}  // namespace gradmon
