// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "control/config/config_schema.h"
#include "tools/gradmonctl/cli/command_line.h"

namespace gradmon {
namespace {

struct SchemaRequest {
  bool text = false;  // a table for people
};

}  // namespace

std::unique_ptr<Subcommand> schema_subcommand() {
  return std::make_unique<PlainSubcommand<SchemaRequest>>(
      "schema [--text]", "Print the JSON Schema of the config file, for editors",
      [](SchemaRequest& request) -> Arguments {
        return {{"--text", &request.text, "a table of all keys instead, for people"}};
      },
      [](const SchemaRequest& request, const Console& console) {
        console.out << (request.text ? config_reference() : config_json_schema());
        return kExitDone;
      });
}

}  // namespace gradmon
