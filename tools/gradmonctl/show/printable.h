// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace gradmon {

// Text of strangers (host names, paths, errors) as a terminal may show it:
// control characters, what reorders text, and bytes that are not UTF-8 are
// written as "\n", "\t", "\r" or "\xNN" for each byte. UTF-8 stays.
std::string printable(std::string_view text);

// The lines of a text, each printable, with `between` in between; empty lines are left out.
std::string printable_lines(std::string_view text, std::string_view between);

}  // namespace gradmon
