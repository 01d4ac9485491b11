// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "control/config/config_schema.h"
#include "tools/gradmonctl/cli/command_line.h"

namespace gradmon {
namespace {

struct SchemaRequest {
  bool text = false;  // a table for people
};

class SchemaSubcommand : public SubcommandFor<SchemaRequest> {
 public:
  std::string usage() const override { return "schema [--text]"; }
  std::string summary() const override { return "Print the JSON Schema of the config file, for editors"; }
  Arguments arguments() override {
    return {{"--text", &request().text, "a table of all keys instead, for people"}};
  }
  int perform(const Console& console) override {
    console.out << (request().text ? config_reference() : config_json_schema());
    return kExitDone;
  }
};

}  // namespace

std::unique_ptr<Subcommand> schema_subcommand() { return std::make_unique<SchemaSubcommand>(); }

}  // namespace gradmon
