// SPDX-License-Identifier: Apache-2.0
// Suggestions for a misspelt name ("did you mean …?"). Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hooks/names/squash_name.h"

namespace gradmon {

// Up to three candidates, the closest first, whose edit distance from `wanted` is at most a third of its
// length (or 2, if that is more). Candidates are `names` and the modules that contain them, as plain_name().
std::vector<std::string> name_suggestions(std::string_view wanted, const std::vector<TargetName>& names);

}  // namespace gradmon
