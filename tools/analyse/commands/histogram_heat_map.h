// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "tools/analyse/commands/run_heat_map.h"

namespace gradmon {

// Bins over steps: how many values of one parameter's update or ratio are in each of the 30 bins, the bin of
// 1 at the top. Of several ranks, and of the steps that share a column in a long run, a cell has the largest
// number. `request.kind` is that of a histogram; `request.target` must fit one parameter alone. Reads the
// event files of TensorBoard; the error says what there is instead.
tl::expected<HeatMap, std::string> histogram_heat_map_of(const Run& run, const HeatMapRequest& request,
                                                         Problems& problems);

}  // namespace gradmon
