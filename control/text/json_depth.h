// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace gradmon {

// How deep brackets may be nested in a JSON file that the tools read. What gradmon and msprobe write is far
// below; SQLite takes 1000.
inline constexpr int kMostJsonDepth = 100;

// Whether brackets of a JSON text are nested deeper than `most`. nlohmann::json parses any depth, but copies
// and dumps a value recursively: a deep one ends the process. Also of a text that is no JSON: then it is true
// at least where a parser would go deeper before it finds the error. Pure.
bool is_nested_deeper(std::string_view json, int most = kMostJsonDepth);

}  // namespace gradmon
