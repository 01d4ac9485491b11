// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "tools/gradmonctl/cli/console.h"

namespace gradmon {

// Reads a config file. The error is one readable line.
tl::expected<std::string, std::string> read_config_text(const std::string& file);

// Prints all errors and warnings of a config text to `console.err`; the messages name `file`. Returns
// kExitDone, or kExitInvalidConfig after errors.
int report_config_problems(const std::string& text, const std::string& file, const Console& console);

// Reads and validates a config file; returns its text. The error is the exit code, after the messages have
// been printed.
tl::expected<std::string, int> valid_config_text(const std::string& file, const Console& console);

// Makes a config file (0640). Keeps an existing file and fails, unless `replace` is given; the user may have
// edited it. Leaves no part of a new file. Returns the exit code, after the error has been printed.
enum class Existing { keep, replace };
int make_config_file(const std::string& file, const std::string& text, Existing existing,
                     const Console& console);

}  // namespace gradmon
