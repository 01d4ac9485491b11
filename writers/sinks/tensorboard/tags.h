// SPDX-License-Identifier: Apache-2.0
// The names of the curves in TensorBoard (FORMAT.md): "actv_norm/fc1.input:micro3", and in msprobe's form
// "0:fc1.input:3/rank2/actv_norm". Pure.
#pragma once

#include <string>
#include <string_view>

#include "control/step.h"
#include "control/vocabulary.h"
#include "writers/queue/layout.h"

namespace gradmon {

// The target's part of a tag in msprobe's form: "0:fc1.input". Malformed UTF-8 becomes U+FFFD. A training
// scalar's whole tag is the part after the colon.
std::string tag_of_target(int vpp_stage, std::string_view name);
// The target's part of a tag in gradmon's form, from msprobe's form: "fc1.input". A stage other than 0 stays,
// and so does 0 before a name that begins like a stage.
std::string_view without_first_stage(std::string_view target);

// The part of a tag that names the kind and the column ("norm"): the first part in gradmon's form,
// "actv_norm/", the last part in msprobe's, "/rank2/actv_norm".
std::string column_in_tag(Kind kind, std::string_view column, const Layout& layout, Rank rank);

// A histogram's tag: "update/fc1.weight", "0:fc1.weight/rank2/update". `target`: from tag_of_target().
std::string histogram_tag(Kind kind, std::string_view target, TagForm form, Rank rank);

// True if the scalar is also drawn over samples. False for throughput per device or per day.
bool drawn_over_samples(std::string_view scalar);
inline constexpr std::string_view kOverSamples = "-vs-samples";  // follows the tag of the scalar

}  // namespace gradmon
