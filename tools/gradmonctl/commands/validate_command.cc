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

Subcommand validate_subcommand() {
  const auto request = std::make_shared<ValidateRequest>();
  Argument file{"FILE", &request->file, "the config file"};
  file.required = true;
  return {request,
          "validate FILE",
          "Check a config file, and list all its errors",
          {file},
          [request](const Console& console) { return validate_command(*request, console); }};
}

}  // namespace gradmon
