// SPDX-License-Identifier: Apache-2.0
// The names of the curves in TensorBoard (FORMAT.md): "0:fc1.input:3/rank2/actv_norm". Pure.
#pragma once

#include <string>
#include <string_view>

#include "control/step.h"
#include "control/vocabulary.h"
#include "writers/queue/layout.h"

namespace gradmon {

// The first part of a tag: "0:fc1.input". Malformed UTF-8 becomes U+FFFD. A training scalar's whole tag is
// what follows the colon.
std::string tag_of_target(int vpp_stage, std::string_view name);

// The last part of a tag: "/rank2/actv_norm". `column` is the title of a column, "norm".
std::string tag_suffix(Kind kind, std::string_view column, const Layout& layout, Rank rank);

// The last part of a histogram's tag: "/rank2/update".
std::string histogram_tag_suffix(Kind kind, Rank rank);

// Whether the scalar is also drawn over samples. Not the figures of throughput that are per device or day.
bool drawn_over_samples(std::string_view scalar);
inline constexpr std::string_view kOverSamples = "-vs-samples";  // follows the tag of the scalar

}  // namespace gradmon
