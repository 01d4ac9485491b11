// SPDX-License-Identifier: Apache-2.0
// JSON Schema (draft-07) of the config file, for editors, made from the tables of config_schema.h. It accepts
// the same files as parse_config(), and some more, because a schema cannot express all rules: duplicate keys,
// documents beyond the bounds of json_locate.h, invalid RE2 patterns, and a tuple index beyond the size of
// the tuple. It allows unknown keys, which are warnings in parse_config(). Pure.
#pragma once

#include <string>

namespace gradmon {

// Indented by two spaces; ends with a newline.
std::string config_json_schema();

}  // namespace gradmon
