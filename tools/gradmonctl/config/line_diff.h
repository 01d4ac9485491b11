// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace gradmon {

// The lines that differ, for people: before each run of them "line N:", with N
// of the old text, then the old lines after "- " and the new ones after "+ ".
// "" where the texts are equal.
std::string line_diff(std::string_view before, std::string_view after);

}  // namespace gradmon
