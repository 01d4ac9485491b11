// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "tools/convert/commands/conversion_request.h"
#include "tools/convert/commands/conversion_run.h"
#include "tools/convert/tensorboard/convert_to_tensorboard.h"
#include "tools/gradmonctl/parse/subcommand.h"

namespace gradmon {
namespace {

class Csv2tbSubcommand : public SubcommandFor<ConversionRequest> {
 public:
  std::string usage() const override {
    return "csv2tb [--monitor-path DIR] [--output-dirpath DIR] [OPTIONS]";
  }
  std::string summary() const override { return "Make event files of TensorBoard from CSV files"; }
  std::string details() const override {
    return "Makes DIR/rank{R}/{prefix}/events..., with one curve vp{vpp}:{name}[:micro{m}]/{op} for each\n"
           "column of numbers. DIR must be new or empty; without --output-dirpath it is\n"
           "{time}_csv2tensorboard_by_step in the job's output directory.\n"
           "\n"
           "examples:\n"
           "  gradmonctl convert csv2tb --monitor-path monitor_output\n"
           "  gradmonctl convert csv2tb --monitor-path monitor_output --time-start Dec03_21-34-40 \\\n"
           "      --data-type-list actv grad_reduced --process-num 8 --output-dirpath curves";
  }
  Arguments arguments() override { return conversion_arguments(request()); }
  std::string complete() override {
    auto input = input_choice_of(request());
    if (!input) return input.error();
    input_ = std::move(*input);
    return "";
  }
  int perform(const Console& console) override {
    Problems problems;
    const auto ranks = chosen_directories(input_, problems);
    if (!ranks) return report_failure(ranks.error(), console);
    const ConversionTasks tasks = conversion_tasks(*ranks, input_.kinds, problems);
    Conversion conversion = conversion_of(input_, *ranks, tasks);
    conversion.target = output_directory_of(request(), "csv2tensorboard_by_step");
    conversion.write = [&](const std::filesystem::path& path, ConversionMeter& meter, Problems& of_rows) {
      return convert_to_tensorboard(tasks, path, static_cast<int>(request().process_num), meter, of_rows);
    };
    return run_conversion(conversion, problems, console);
  }

 private:
  InputChoice input_;
};

}  // namespace

std::unique_ptr<Subcommand> csv2tb_subcommand() { return std::make_unique<Csv2tbSubcommand>(); }

}  // namespace gradmon
