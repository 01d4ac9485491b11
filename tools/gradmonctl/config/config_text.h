// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "tools/gradmonctl/show/console.h"

namespace gradmon {

// Reads a config file. The error is one readable line.
tl::expected<std::string, std::string> read_config_text(const std::string& file);

// Prints all errors and warnings of a config text to `console.err`; the messages name
// `file`. Returns kExitDone, or kExitInvalidConfig if there are errors.
int report_config_problems(const std::string& text, const std::string& file, const Console& console);

// Reads and validates a config file; returns its text. The error is the exit code; the
// messages have been printed.
tl::expected<std::string, int> valid_config_text(const std::string& file, const Console& console);

// Makes a config file (0640). An existing one stays, and is an error, unless it is replaced; the user may
// have edited it. Leaves no part of a new one. Returns the exit code; an error has been printed.
enum class Existing { keep, replace };
int make_config_file(const std::string& file, const std::string& text, Existing existing,
                     const Console& console);

}  // namespace gradmon
