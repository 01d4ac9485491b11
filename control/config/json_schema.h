// SPDX-License-Identifier: Apache-2.0
// JSON Schema (draft-07) of the config file, for editors. Made from the tables
// of config_schema.h; it judges as parse_config does, but for what a schema
// cannot say: it lets pass duplicate keys, documents beyond the bounds of
// json_locate.h, patterns that RE2 does not compile, and a tuple index beyond
// the size of the tuple. Unknown keys it allows: with us they are warnings. Pure.
#pragma once

#include <string>

namespace gradmon {

// Indented by two blanks, with a line feed at the end.
std::string config_json_schema();

}  // namespace gradmon
