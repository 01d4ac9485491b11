// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <system_error>
#include <utility>

#include "control/files/make_directories.h"
#include "tools/convert/commands/conversion_request.h"
#include "tools/convert/commands/conversion_run.h"
#include "tools/convert/database/convert_to_database.h"
#include "tools/gradmonctl/parse/subcommand.h"
#include "writers/sinks/sqlite/metrics_schema.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

// msprobe's limits.
constexpr std::int64_t kLeastPartition = 10;
constexpr std::int64_t kMostPartition = 10'000'000;

struct Csv2dbRequest {
  ConversionRequest conversion;
  std::int64_t step_partition = kPartitionSteps;
};

tl::expected<void, std::string> write_database(const ConversionTasks& tasks, const fs::path& file,
                                               const Csv2dbRequest& request, ConversionMeter& meter,
                                               Problems& problems) {
  auto database = NewDatabase::make(file, request.step_partition);
  if (!database) return tl::unexpected(database.error());
  const int threads = static_cast<int>(request.conversion.process_num);
  if (auto written = convert_to_database(tasks, *database, threads, meter, problems); !written)
    return written;
  if (meter.stop) return {};
  return database->finish();
}

class Csv2dbSubcommand : public SubcommandFor<Csv2dbRequest> {
 public:
  std::string usage() const override {
    return "csv2db [--monitor-path DIR] [--output-dirpath DIR] [OPTIONS]";
  }
  std::string summary() const override { return "Make an SQLite database from CSV files"; }
  std::string details() const override {
    return "Makes DIR/monitor_metrics.db, with the tables of msprobe's csv2db and the views of gradmon. The\n"
           "file must not be there yet; without --output-dirpath DIR is {time}_csv2db in the job's output\n"
           "directory. gradmonctl query reads it.\n"
           "\n"
           "examples:\n"
           "  gradmonctl convert csv2db --monitor-path monitor_output\n"
           "  gradmonctl convert csv2db --monitor-path monitor_output --data-type-list actv,other \\\n"
           "      --step-partition 1000 --output-dirpath job\n"
           "  gradmonctl query --metric actv --op norm job";
  }
  Arguments arguments() override {
    Arguments arguments = conversion_arguments(request().conversion);
    Argument partition{"--step-partition,--step_partition", &request().step_partition,
                       "steps of one table (default: 500)", "N"};
    partition.least = kLeastPartition;
    partition.most = kMostPartition;
    arguments.push_back(std::move(partition));
    return arguments;
  }
  std::string complete() override {
    auto input = input_choice_of(request().conversion);
    if (!input) return input.error();
    input_ = std::move(*input);
    return "";
  }
  int perform(const Console& console) override {
    Problems problems;
    const auto ranks = chosen_directories(input_, problems);
    if (!ranks) return report_failure(ranks.error(), console);
    const ConversionTasks tasks = conversion_tasks(*ranks, input_.kinds, problems);
    const fs::path directory = output_directory_of(request().conversion, "csv2db");
    std::error_code ignored;
    const bool is_there = fs::is_directory(directory, ignored);
    Conversion conversion = conversion_of(input_, *ranks, tasks);
    conversion.target = is_there ? directory / kMetricsFileName : directory;
    conversion.write = [&](const fs::path& path, ConversionMeter& meter,
                           Problems& of_rows) -> tl::expected<void, std::string> {
      if (is_there) return write_database(tasks, path, request(), meter, of_rows);
      if (auto made = make_directories(path); !made) return made;
      return write_database(tasks, path / kMetricsFileName, request(), meter, of_rows);
    };
    return run_conversion(conversion, problems, console);
  }

 private:
  InputChoice input_;
};

}  // namespace

std::unique_ptr<Subcommand> csv2db_subcommand() { return std::make_unique<Csv2dbSubcommand>(); }

}  // namespace gradmon
