// SPDX-License-Identifier: Apache-2.0
// Text to Config, or all its errors. Pure functions; any thread.
//
// What is valid JSON is decided by simdjson; beyond that a config has no
// duplicate keys, is at most 1 MiB, 32 deep and 65,536 values, and every known
// key has the type and range of config_schema.h. A UTF-8 BOM is accepted.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "control/config/config.h"

namespace gradmon {

// Something the user is to correct: the whole file is refused.
struct ConfigError {
  std::string file;
  std::size_t line = 1;    // from 1
  std::size_t column = 1;  // from 1, in characters
  std::string pointer;     // RFC 6901 of the value, as "/ops/2"; "" for the document
  std::string found;       // the value as it is in the file, shortened; "" where none
  std::string expected;    // what could have been there, or what is wrong
};

// Something the user ought to know: the file is adopted.
struct ConfigWarning {
  std::string file;
  std::size_t line = 1;
  std::size_t column = 1;
  std::string pointer;
  std::string text;
};

struct ParsedConfig {
  Config config;
  std::vector<ConfigWarning> warnings;  // in the order of the file
};

// `file_name` is for the messages only. Of errors and of warnings the first
// hundred are told.
[[nodiscard]] tl::expected<ParsedConfig, std::vector<ConfigError>> parse_config(std::string_view text,
                                                                                std::string_view file_name);

// As `monitor_config.json:7:3: /collect_times: found "2", expected an integer >= 0`.
std::string to_string(const ConfigError& error);
std::string to_string(const ConfigWarning& warning);
// One line for each.
std::string to_string(const std::vector<ConfigError>& errors);

}  // namespace gradmon
