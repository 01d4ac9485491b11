// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace gradmon {

// A readable diff. Each run of different lines starts with "line N:", where N is the
// line in the old text; then come the old lines after "- " and the new lines after "+ ".
// "" if the texts are equal.
std::string line_diff(std::string_view before, std::string_view after);

}  // namespace gradmon
