// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "tools/gradmonctl/cli/argument.h"

namespace gradmon {

// Parses one KEY=VALUE of `gradmonctl set` for Command::edits: the key (or JSON pointer),
// and the value as JSON text. KEY ends at the first "=". A VALUE that is not JSON becomes
// a string. A KEY with a dot is refused, because no key has a dot. The error is one
// readable line.
tl::expected<std::pair<std::string, std::string>, std::string> parse_set_argument(
    const std::string& argument);

// The positional arguments KEY=VALUE... of a command, stored in `words`.
Argument edit_words(std::vector<std::string>& words, const std::string& help);
// Parses all words and appends them to `edits`. Returns the error of the first invalid word,
// "" if all are valid.
std::string parse_edits(const std::vector<std::string>& words,
                        std::vector<std::pair<std::string, std::string>>& edits);

}  // namespace gradmon
