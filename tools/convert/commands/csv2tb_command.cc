// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "tools/convert/commands/csv_conversion.h"
#include "tools/convert/tensorboard/convert_to_tensorboard.h"

namespace gradmon {
namespace {

class Csv2tbSubcommand : public CsvConversion {
 public:
  std::string usage() const override { return "csv2tb [RUN] [--output-dirpath DIR] [OPTIONS]"; }
  std::string summary() const override { return "Make event files of TensorBoard from CSV files"; }
  std::string details() const override {
    return "Makes DIR/rank{R}/{prefix}/events..., with one curve vp{vpp}:{name}[:micro{m}]/{op} for each\n"
           "column of numbers. Of an earlier conversion in DIR those that are made again are replaced, once\n"
           "all new ones are complete; all else in DIR stays. Without --output-dirpath DIR is\n"
           "{time}_csv2tensorboard_by_step in the job's output directory.\n"
           "\n"
           "examples:\n"
           "  gradmonctl convert csv2tb monitor_output\n"
           "  gradmonctl convert csv2tb monitor_output --time-start Dec03_21-34-40 \\\n"
           "      --data-type-list actv grad_reduced --process-num 8 --output-dirpath curves";
  }

 protected:
  tl::expected<void, std::string> choose_output(const ConversionTasks& tasks,
                                                Conversion& conversion) override {
    conversion.target = output_directory_of(request(), "csv2tensorboard_by_step");
    conversion.earlier = UnfinishedOutput::Earlier::curves;
    const int threads = static_cast<int>(request().process_num);
    conversion.write = [&tasks, threads](const std::filesystem::path& path, ConversionMeter& meter,
                                         Problems& problems) {
      return convert_to_tensorboard(tasks, path, threads, meter, problems);
    };
    return {};
  }
};

}  // namespace

std::unique_ptr<Subcommand> csv2tb_subcommand() { return std::make_unique<Csv2tbSubcommand>(); }

}  // namespace gradmon
