// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/aliases.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/console.h"

namespace gradmon {

// Reads a config file. The error is one readable line.
Result<std::string> read_config_text(const std::string& file);

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

// A readable diff. Each run of different lines starts with "line N:", where N is the
// line in the old text; then come the old lines after "- " and the new lines after "+ ".
// "" if the texts are equal.
std::string line_diff(std::string_view before, std::string_view after);

// Parses one KEY=VALUE of `gradmonctl set` for Command::edits: the key (or JSON pointer),
// and the value as JSON text. KEY ends at the first "=". A VALUE that is not JSON becomes
// a string. A KEY with a dot is refused, because no key has a dot. The error is one
// readable line.
Result<std::pair<std::string, std::string>> parse_set_argument(const std::string& argument);

// The positional arguments KEY=VALUE... of a command, stored in `words`.
Argument edit_words(std::vector<std::string>& words, const std::string& help);
// Parses all words and appends them to `edits`. Returns the error of the first invalid word,
// "" if all are valid.
std::string parse_edits(const std::vector<std::string>& words,
                        std::vector<std::pair<std::string, std::string>>& edits);

// The JSON value of a key (or JSON pointer) in a valid config text, exactly as written;
// if the text lacks the key, its default, or "null" if it has no default. The error, one
// readable line: the key is unknown; it suggests the nearest key.
Result<std::string> config_value(std::string_view text, const std::string& key);

}  // namespace gradmon
