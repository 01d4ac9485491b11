// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "control/vocabulary.h"
#include "tools/analyse/rows/row.h"
#include "tools/analyse/run_choice.h"

namespace gradmon {

// A part of a training step, in the order of computation. Weights and moments at the begin of a step were
// computed in the step before, so they come first.
enum class Phase : std::uint8_t { state, forward, backward, reduction, update, scalars };

Phase phase_of(Kind kind, const Row& row);
// "in the forward pass"
const char* text_of(Phase phase);

// Orders rows by step; in a step: state, then for each micro step forward and backward, then the rest.
// Within a phase: model chunks (rising, in the backward pass falling), kind, place among the rows of the step
// in the file, rank; collective calls before reduced gradients.
struct StepOrder {
  std::int64_t step = 0;
  std::uint8_t part = 0;
  std::int32_t micro_step = 0;
  Phase phase = Phase::state;
  std::uint8_t file = 0;  // the place of the kind within the phase
  std::int32_t chunk = 0;
  std::uint64_t place = 0;
  int rank = 0;
};
StepOrder order_of(int rank, Kind kind, const Row& row);
bool operator<(const StepOrder& a, const StepOrder& b);

// `overflow`: the elements are finite; only their sum (mean) or the sum of their squares (norm) is not.
enum class NotFinite : std::uint8_t { none, overflow, infinite, nan };

struct NotFiniteField {
  NotFinite what = NotFinite::none;
  Field field = 0;  // the statistic that shows it
};

// A row's evidence of elements that are not finite, by METRICS.md's definition of each statistic. Pure.
//   nan       "nans" is above 0, or a norm or an extreme is NaN: only a NaN element makes a sum of squares
//             or an extreme NaN, regardless of "nans". Infinities of both signs also make a mean NaN, so a
//             NaN mean shows a NaN element only if the row has none of the other statistics.
//   infinite  an extreme is infinite; or norm or mean is not finite, and the row does not show that the
//             elements are (it has neither an extreme of magnitudes nor both min and max). Such a row may be
//             an overflow.
//   overflow  norm or mean is not finite, although all elements are.
// Ignores values that are NaN by definition: "zeros", a minimum or maximum of complex numbers, and all
// statistics except "nans" of a boolean or an empty tensor.
NotFiniteField not_finite_in(const Row& row);

// "NaN", "an infinity" or "an overflow".
const char* text_of(NotFinite what);

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

// A row that owns its texts.
struct Sample {
  std::int64_t step = 0;
  std::int32_t micro_step = -1;
  std::int32_t vpp_stage = 0;
  std::string name;
  std::array<double, kFields> values{};
  std::uint32_t mask = 0;
};

// The surroundings of a value that is not finite.
struct NotFiniteContext {
  struct Count {
    std::uint64_t rows = 0;
    std::uint64_t not_finite = 0;
  };
  std::vector<Sample>
      history;  // the same tensor and rank: up to kBefore steps before, the step, kAfter after
  std::vector<Sample> neighbours;  // the step's rows before and after it in the file, of the same micro step
  std::size_t place = 0;           // of the row in `neighbours`
  std::map<int, bool> ranks;       // other ranks with a row of the tensor in the step; true: it is not finite
  std::map<std::int64_t, Count> spread;  // by step, over all ranks and kinds: the step and those after it
};

inline constexpr std::size_t kBefore = 5;
inline constexpr std::size_t kAfter = 2;
inline constexpr std::size_t kNeighbours = 3;  // before, and after

// Reads the files of the run around `found.first`, which must be set, once more.
NotFiniteContext context_of(const Run& run, const FirstNotFinite& found, Problems& problems);

}  // namespace gradmon
