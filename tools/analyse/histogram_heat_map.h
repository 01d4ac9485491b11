// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "tools/analyse/run_heat_map.h"

namespace gradmon {

// Bins over steps: the number of values of one parameter's update or ratio in each of the 30 bins, the bin of
// 1 at the top. With several ranks, or several steps in a column of a long run, a cell shows the largest
// number. `request.kind` must be a histogram's; `request.target` must fit one parameter alone. Reads the
// event files of TensorBoard; the error names the histograms that exist instead.
tl::expected<HeatMap, std::string> histogram_heat_map_of(const Run& run, const HeatMapRequest& request,
                                                         Problems& problems);

}  // namespace gradmon
