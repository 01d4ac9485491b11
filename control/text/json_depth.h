// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace gradmon {

// The greatest nesting depth of brackets in a JSON file that the tools read. gradmon and msprobe stay far
// below; SQLite takes 1000.
inline constexpr int kMostJsonDepth = 100;

// True if brackets of a JSON text are nested deeper than `most`. nlohmann::json parses any depth, but copies
// and dumps a value recursively: a deep value ends the process. For a text that is not JSON, true at least
// where a parser would go deeper before it finds the error. Pure.
bool is_nested_deeper(std::string_view json, int most = kMostJsonDepth);

}  // namespace gradmon
