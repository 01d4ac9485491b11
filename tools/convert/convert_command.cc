// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "tools/gradmonctl/cli/command_line.h"

namespace gradmon {

// Each function is defined in its command's .cc file.
std::unique_ptr<Subcommand> csv2tb_subcommand();
std::unique_ptr<Subcommand> csv2db_subcommand();
std::unique_ptr<Subcommand> merge_subcommand();

namespace {

class ConvertSubcommand : public Subcommand {
 public:
  std::string usage() const override { return "convert COMMAND [OPTIONS]"; }
  std::string summary() const override { return "Turn what a job has written into another form"; }
  std::string details() const override {
    return "The commands read the output of gradmon and of msprobe, of a job that has ended or still runs.\n"
           "Rows that cannot be read are reported with file and line, and left out. The output appears\n"
           "when it is complete; if the command is interrupted, nothing appears.";
  }
  Subcommands members() override {
    Subcommands all;
    for (const auto make : {csv2tb_subcommand, csv2db_subcommand, merge_subcommand}) all.push_back(make());
    return all;
  }
  int perform(const Console&) override { return kExitUsage; }  // a group is never performed
};

}  // namespace

std::unique_ptr<Subcommand> convert_subcommand() { return std::make_unique<ConvertSubcommand>(); }

}  // namespace gradmon
