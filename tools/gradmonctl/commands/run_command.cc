// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <memory>

#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/launcher.h"

namespace gradmon {
namespace {

constexpr int kMaxRanks = 1024;

}  // namespace

Subcommand run_subcommand() {
  const auto request = std::make_shared<RunRequest>();
  Argument ranks{"-n", &request->ranks, "number of ranks", "N"};
  ranks.required = true;
  ranks.least = 1;
  ranks.most = kMaxRanks;
  return {request,
          "run -n N -- COMMAND...",
          "Start a command once for each rank on this host",
          {ranks},
          [request](const Console& console) {
            const auto code = launch({static_cast<int>(request->ranks), request->command});
            return code ? *code : report_error(code.error(), console);
          },
          [request] {
            return std::string(request->command.empty() ? "no command to run: give it after --" : "");
          },
          "Sets DYNAMIC_MONITOR=True for the ranks unless the variable is set: collection is switched "
          "while\n"
          "they train.",
          &request->command};
}

}  // namespace gradmon
