// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/analyse/first_not_finite.h"
#include "tools/analyse/layer_series.h"
#include "tools/analyse/rows/name_index.h"

namespace gradmon {

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
