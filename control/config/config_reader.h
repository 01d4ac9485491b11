// SPDX-License-Identifier: Apache-2.0
// Fills a Config from JSON values by the tables of config_schema.h, and collects all errors and
// warnings. Uses no JSON library. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "control/config/config_parser.h"
#include "control/config/json_locate.h"

namespace gradmon {

// A decoded scalar; monostate for null, objects and arrays.
using JsonScalar = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string>;

// A JSON text, the positions of its values, and the decoded scalars.
struct JsonTree {
  std::string_view text;
  JsonDocument document;
  std::vector<JsonScalar> scalars;  // one for each node of `document`
};

struct ConfigReading {
  Config config;  // meaningless after errors
  std::vector<ConfigError> errors;
  std::vector<ConfigWarning> warnings;
};

// `tree` has at least one node.
ConfigReading read_config(const JsonTree& tree, std::string_view file_name);

}  // namespace gradmon
