// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "tools/gradmonctl/show/console.h"

namespace gradmon {

// The text of a config file. The error is a line for people.
tl::expected<std::string, std::string> read_config_text(const std::string& file);

// Says all errors and warnings of a config text on `console.err`; `file` is for
// the messages. kExitDone, or kExitInvalidConfig where there are errors.
int judge_config_text(const std::string& text, const std::string& file, const Console& console);

// Both: the text of a valid file. The error: what to end with; it has been said.
tl::expected<std::string, int> valid_config_text(const std::string& file, const Console& console);

}  // namespace gradmon
