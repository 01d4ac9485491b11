// SPDX-License-Identifier: Apache-2.0
// Did you mean …? Strings in, strings out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hooks/names/squash_name.h"

namespace gradmon {

// Up to three of the names, or of the modules above them, that differ from
// `wanted` in at most a third of its characters (two at least): the closest
// first, in plain form.
std::vector<std::string> near_names(std::string_view wanted, const std::vector<TargetName>& names);

}  // namespace gradmon
