// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace gradmon {

// Makes untrusted text (host names, paths, errors) safe for a terminal: control
// characters, line separators, bidirectional controls, invisible spaces and bytes that are not UTF-8 become
// "\n", "\t", "\r" or "\xNN" for each byte. Other UTF-8 stays.
std::string printable(std::string_view text);

// The lines of a text without empty lines, each made printable, joined by `between`.
std::string printable_lines(std::string_view text, std::string_view between);

}  // namespace gradmon
