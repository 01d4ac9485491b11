// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <memory>

#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/commands/config_text.h"

namespace gradmon {

int validate_command(const ValidateRequest& request, const Console& console) {
  const auto text = valid_config_text(request.file, console);
  if (!text) return text.error();
  console.out << printable(request.file) << ": valid\n";
  return kExitDone;
}

namespace {

class ValidateSubcommand : public SubcommandFor<ValidateRequest> {
 public:
  std::string usage() const override { return "validate FILE"; }
  std::string summary() const override { return "Check a config file, and list all its errors"; }
  Arguments arguments() override {
    Argument file{"FILE", &request().file, "the config file"};
    file.required = true;
    return {file};
  }
  int perform(const Console& console) override { return validate_command(request(), console); }
};

}  // namespace

std::unique_ptr<Subcommand> validate_subcommand() { return std::make_unique<ValidateSubcommand>(); }

}  // namespace gradmon
