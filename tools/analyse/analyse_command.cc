// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "tools/gradmonctl/cli/command_line.h"

namespace gradmon {

// Each function is defined in its command's .cc file.
std::unique_ptr<Subcommand> first_subcommand();
std::unique_ptr<Subcommand> top_subcommand();
std::unique_ptr<Subcommand> diff_subcommand();
std::unique_ptr<Subcommand> anomalies_subcommand();
std::unique_ptr<Subcommand> plot_subcommand();

namespace {

class AnalyseSubcommand : public Subcommand {
 public:
  std::string usage() const override { return "analyse COMMAND [OPTIONS]"; }
  std::string summary() const override { return "Search what a job has written, without the job"; }
  std::string details() const override {
    return "The commands read the CSV files of gradmon and of msprobe, of a job that has ended or\n"
           "still runs. Rows that cannot be read are reported with file and line, and left out.";
  }
  Subcommands members() override {
    Subcommands all;
    for (const auto make :
         {first_subcommand, top_subcommand, diff_subcommand, anomalies_subcommand, plot_subcommand})
      all.push_back(make());
    return all;
  }
  int perform(const Console&) override { return kExitUsage; }  // a group is never performed
};

}  // namespace

std::unique_ptr<Subcommand> analyse_subcommand() { return std::make_unique<AnalyseSubcommand>(); }

}  // namespace gradmon
