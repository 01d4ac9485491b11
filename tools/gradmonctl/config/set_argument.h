// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "tools/gradmonctl/parse/argument.h"

namespace gradmon {

// One KEY=VALUE of `gradmonctl set`, as Command::edits wants it: the key (or
// JSON pointer), and the value as JSON text. A VALUE that is not JSON is taken
// as a string. The KEY ends at the first "="; one with
// a dot is refused, as no key has one. The error is a line for people.
tl::expected<std::pair<std::string, std::string>, std::string> parse_set_argument(
    const std::string& argument);

// The positional KEY=VALUE... of a command: its words go to `words`.
Argument edit_words(std::vector<std::string>& words, const std::string& help);
// Each of them parsed. Returns what is wrong with the first that cannot be, "" for nothing.
std::string parse_edits(const std::vector<std::string>& words,
                        std::vector<std::pair<std::string, std::string>>& edits);

}  // namespace gradmon
