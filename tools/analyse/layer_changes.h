// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/analyse/first_not_finite.h"
#include "tools/analyse/rows/row.h"

namespace gradmon {

// One number for the size of a row's tensor, at least 0: its norm, else the largest magnitude of its extremes
// (min, max), else kernel_norm, else |mean|. nullopt: all are missing. May be NaN or infinite. Pure.
std::optional<double> size_of(const Row& row);

// A change of a tensor's size from one collected step to the next.
struct SizeChange {
  double factor = 1;  // at least 1, up or down; sizes count as at least 1e-6 of the largest one before
  std::int64_t from_step = -1;
  std::int64_t step = -1;
  double before = 0;
  double after = 0;
};

// The sizes of one tensor on one rank over the steps, in little memory. Several rows of a step count as their
// largest. Skips sizes that are not finite. Steps must ascend; skips a row of an earlier step. A value.
class LayerSeries {
 public:
  void add(std::int64_t step, double size);
  // Call it after the last row.
  void end();

  std::uint64_t steps() const { return steps_; }
  const SizeChange& largest_change() const { return largest_change_; }
  // The first of the last steps with a size of 0, or of at most 1e-6 of the largest one before; -1 if fewer
  // than two such steps are at the end.
  std::int64_t dead_since() const { return dead_steps_ >= 2 ? dead_since_ : -1; }
  // The median of the last 3 sizes divided by the median of the first ones, up to 5 of those before the last
  // 3. 1 with fewer than 4 steps or a median of 0.
  double growth() const;
  double last_size() const { return last_size_; }

 private:
  void end_step();

  static constexpr std::size_t kEarly = 5;
  static constexpr std::size_t kLate = 3;

  std::int64_t step_ = -1;  // the step being read
  double step_size_ = 0;
  std::uint64_t steps_ = 0;
  std::int64_t last_step_ = -1;
  double last_size_ = 0;
  double largest_ = 0;
  std::int64_t dead_since_ = -1;
  std::uint64_t dead_steps_ = 0;
  SizeChange largest_change_;
  std::array<double, kEarly> early_{};
  std::array<double, kLate> late_{};  // a ring
};

// The conspicuous layers (parameters, modules) of a run. All lists: the worst first.
struct LayerChanges {
  struct Change {  // one for each layer: of the kind and rank with the largest change
    std::string layer;
    Kind kind = Kind::other;
    int rank = 0;
    SizeChange change;
  };
  struct Dead {
    std::string layer;
    Kind kind = Kind::other;  // the first one in which it is dead
    std::int64_t since = 0;   // the first step of those until the end, on any rank
    std::size_t ranks = 0;    // their number
    int rank = 0;             // the first of them
  };
  struct Exploding {
    std::string layer;
    Kind kind = Kind::other;
    int rank = 0;
    double growth = 1;  // as of LayerSeries
    double last_size = 0;
  };
  std::vector<Change> largest;
  std::vector<Dead> dead;
  std::vector<Exploding> exploding;
  std::size_t layers = 0;
  FirstNotFinite not_finite;
};

// A layer is exploding if it has grown by at least this.
inline constexpr double kExplodingGrowth = 10;

// Reads the whole run. Scalars and "other" have no layers.
LayerChanges find_layer_changes(const Run& run, Problems& problems);

}  // namespace gradmon
