// SPDX-License-Identifier: Apache-2.0
// Parses a config text into a Config, or into all its errors. Pure functions; any thread.
//
// The text must be JSON without duplicate keys, of at most 1 MiB, 32 levels and 65,536 values. Every known
// key must have the type and range of config_schema.h; an unknown key may have any value, also a number
// beyond 64 bits. A UTF-8 BOM is accepted.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "control/config/config.h"
#include "control/config/json_text.h"

namespace gradmon {

struct ConfigPlace {
  std::string file;
  std::size_t line = 1;    // from 1
  std::size_t column = 1;  // from 1, in characters
  std::string pointer;     // RFC 6901 pointer to the value, as "/ops/2"; "" for the document
};

// An error in the config. The whole file is refused.
struct ConfigError {
  ConfigPlace place;
  std::string found;     // the value in the file, shortened; "": none
  std::string expected;  // the valid values; "" if `found` is the whole message
};

// A warning about the config. The file is accepted.
struct ConfigWarning {
  ConfigPlace place;
  std::string text;
  std::string unknown = {};  // names a key or op that does not exist; "": another warning
};

struct ParsedConfig {
  Config config;
  std::vector<ConfigWarning> warnings;  // in the order of the file
};

// `file_name` is used in messages only. At most the first 100 errors and 100 warnings are returned.
using ConfigResult = tl::expected<ParsedConfig, std::vector<ConfigError>>;
[[nodiscard]] ConfigResult parse_config(const JsonText& json, std::string_view file_name);
[[nodiscard]] ConfigResult parse_config(std::string_view text, std::string_view file_name);

// As `monitor_config.json:7:3: /collect_times: found "2", expected an integer >= 0`.
std::string to_string(const ConfigError& error);
std::string to_string(const ConfigWarning& warning);
// One line per error.
std::string to_string(const std::vector<ConfigError>& errors);

}  // namespace gradmon
