// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "tools/analyse/heat_map.h"
#include "tools/analyse/run_choice.h"

namespace gradmon {

struct HeatMapRequest {
  std::string kind;                  // "": grad_reduced, else the run's first kind
  std::string field;                 // "": norm, else the first field present
  std::string target;                // "": all layers
  std::optional<std::int64_t> rank;  // nullopt: all ranks
};

// Layer over step. Reads the CSV files of the run. The error names the kinds or layers that exist instead.
tl::expected<HeatMap, std::string> heat_map_of(const Run& run, const HeatMapRequest& request,
                                               Problems& problems);

// True if a target names the layer: by its whole name, or by the name of a module above it; with "*" (any
// text) and "?" (one byte), by a pattern for the whole name. Pure.
bool is_target(std::string_view target, std::string_view name);

// Bins over steps: the number of values of one parameter's update or ratio in each of the 30 bins, the bin of
// 1 at the top. With several ranks, or several steps in a column of a long run, a cell shows the largest
// number. `request.kind` must be a histogram's; `request.target` must fit one parameter alone. Reads the
// event files of TensorBoard; the error names the histograms that exist instead.
tl::expected<HeatMap, std::string> histogram_heat_map_of(const Run& run, const HeatMapRequest& request,
                                                         Problems& problems);

}  // namespace gradmon
