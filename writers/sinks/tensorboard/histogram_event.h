// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "control/step.h"
#include "writers/queue/histogram.h"

namespace gradmon {

// A record that TensorBoard shows as a histogram. `tag` is UTF-8. `min` and `max` are the edges of the bins
// that have values: TensorBoard draws the outermost of these bins up to them. `sum` and `sum_squares` use the
// bins' centres, because the values themselves are not known. Pure.
std::string histogram_record(std::string_view tag, const BinCounts& counts, Step step, double wall_time);

}  // namespace gradmon
