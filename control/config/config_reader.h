// SPDX-License-Identifier: Apache-2.0
// From JSON values to Config by the tables of config_schema.h: every error and
// warning is collected. Knows no JSON library. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "control/config/config_parser.h"
#include "control/config/json_locate.h"

namespace gradmon {

// What a value means; containers hold nothing here.
using JsonScalar = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string>;

// A JSON text, where its values are, and what they mean.
struct JsonTree {
  std::string_view text;
  JsonDocument where;
  std::vector<JsonScalar> what;  // one for each node of `where`
};

struct ConfigReading {
  Config config;  // means nothing where there are errors
  std::vector<ConfigError> errors;
  std::vector<ConfigWarning> warnings;
};

// `tree` has at least one node.
ConfigReading read_config(const JsonTree& tree, std::string_view file_name);

}  // namespace gradmon
