// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "control/config/config_schema.h"
#include "tools/gradmonctl/cli/command_line.h"

namespace gradmon {
Subcommand schema_subcommand() {
  const auto text = std::make_shared<bool>(false);
  return {text,
          "schema [--text]",
          "Print the JSON Schema of the config file, for editors",
          {{"--text", text.get(), "a table of all keys instead, for people"}},
          [text](const Console& console) {
            console.out << (*text ? config_reference() : config_json_schema());
            return kExitDone;
          }};
}

}  // namespace gradmon
