// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace gradmon {

// One KEY=VALUE of `gradmonctl set`, as Command::edits wants it: the key (or
// JSON pointer), and the value as JSON text. A VALUE that is not JSON is taken
// as a string. The KEY ends at the first "="; one with
// a dot is refused, as no key has one. The error is a line for people.
tl::expected<std::pair<std::string, std::string>, std::string> parse_set_argument(
    const std::string& argument);

}  // namespace gradmon
