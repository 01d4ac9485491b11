// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <memory>

#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/launcher.h"

namespace gradmon {
namespace {

constexpr int kMaxRanks = 1024;

class RunSubcommand : public SubcommandFor<RunRequest> {
 public:
  std::string usage() const override { return "run -n N -- COMMAND..."; }
  std::string summary() const override { return "Start a command once for each rank on this host"; }
  std::string details() const override {
    return "Sets DYNAMIC_MONITOR=True for the ranks unless the variable is set: collection is switched "
           "while\n"
           "they train.";
  }
  Arguments arguments() override {
    Argument ranks{"-n", &request().ranks, "number of ranks", "N"};
    ranks.required = true;
    ranks.least = 1;
    ranks.most = kMaxRanks;
    return {ranks};
  }
  std::vector<std::string>* rest() override { return &request().command; }
  std::string complete() override {
    return request().command.empty() ? "no command to run: give it after --" : "";
  }
  int perform(const Console& console) override {
    Launch order;
    order.ranks = static_cast<int>(request().ranks);
    order.command = request().command;
    const auto code = launch(order);
    return code ? *code : report_error(code.error(), console);
  }
};

}  // namespace

std::unique_ptr<Subcommand> run_subcommand() { return std::make_unique<RunSubcommand>(); }

}  // namespace gradmon
