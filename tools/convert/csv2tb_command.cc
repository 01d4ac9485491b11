// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "tools/convert/convert_to_tensorboard.h"
#include "tools/convert/csv_conversion.h"

namespace gradmon {
namespace {

class Csv2tbSubcommand : public CsvConversion {
 public:
  std::string usage() const override { return "csv2tb [RUN] [--output-dirpath DIR] [OPTIONS]"; }
  std::string summary() const override { return "Make event files of TensorBoard from CSV files"; }
  std::string details() const override {
    return "Makes DIR/rank{R}/{prefix}/events..., with one curve {prefix}_{op}/{name}[:micro{m}] for\n"
           "each column of numbers. Of an earlier conversion in DIR those that are made again are\n"
           "replaced, once all new ones are complete; all else in DIR stays. Without --output-dirpath\n"
           "DIR is {time}_csv2tensorboard_by_step beside the job's output directory. With --tags msprobe\n"
           "curves are vp{vpp}:{name}[:micro{m}]/{op}, and DIR is by default in the output directory.\n"
           "\n"
           "examples:\n"
           "  gradmonctl convert csv2tb monitor_output\n"
           "  tensorboard --logdir *_csv2tensorboard_by_step\n"
           "  gradmonctl convert csv2tb monitor_output --time-start Dec03_21-34-40 \\\n"
           "      --data-type-list actv grad_reduced --process-num 8 --output-dirpath curves";
  }

  Arguments arguments() override {
    Arguments arguments = CsvConversion::arguments();
    Argument tags{"--tags", &tags_, "the names of curves: gradmon (default) or msprobe", "FORM"};
    tags.choices = {"gradmon", "msprobe"};
    arguments.push_back(tags);
    return arguments;
  }

 protected:
  tl::expected<void, std::string> choose_output(const ConversionTasks& tasks,
                                                Conversion& conversion) override {
    const TagForm form = tags_ == "msprobe" ? TagForm::msprobe : TagForm::gradmon;
    conversion.target = output_directory_of(request(), "csv2tensorboard_by_step",
                                            form == TagForm::msprobe ? Place::within : Place::beside);
    conversion.earlier = UnfinishedOutput::Earlier::curves;
    const int threads = static_cast<int>(request().process_num);
    conversion.write = [&tasks, threads, form](const std::filesystem::path& path, ConversionMeter& meter,
                                               Problems& problems) {
      return convert_to_tensorboard(tasks, path, form, threads, meter, problems);
    };
    return {};
  }

 private:
  std::string tags_;
};

}  // namespace

std::unique_ptr<Subcommand> csv2tb_subcommand() { return std::make_unique<Csv2tbSubcommand>(); }

}  // namespace gradmon
