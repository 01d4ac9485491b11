// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <system_error>
#include <utility>

#include "control/files/file_access.h"
#include "tools/analyse/rows/runs.h"
#include "tools/convert/convert_to_database.h"
#include "tools/convert/csv_conversion.h"
#include "writers/sinks/metrics_schema.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

// msprobe's limits.
constexpr std::int64_t kLeastPartition = 10;
constexpr std::int64_t kMostPartition = 10'000'000;

struct DatabaseOptions {
  std::int64_t step_partition = kPartitionSteps;
  int threads = 1;
};

tl::expected<void, std::string> write_database(const ConversionTasks& tasks, const fs::path& file,
                                               const DatabaseOptions& options, ConversionMeter& meter,
                                               Problems& problems) {
  auto database = NewDatabase::make(file, options.step_partition);
  if (!database) return tl::unexpected(database.error());
  if (auto written = convert_to_database(tasks, *database, options.threads, meter, problems); !written)
    return written;
  if (meter.stop) return {};
  return database->finish();
}

// The error: a running job has, or may have, the database in the directory.
tl::expected<void, std::string> may_be_replaced(const fs::path& directory) {
  std::error_code ignored;
  bool in_use = parse_rank_directory(directory_name(directory)).has_value();
  for (const char* const companion : {"-wal", "-journal"})
    in_use = in_use || fs::exists((directory / kMetricsFileName).string() + companion, ignored);
  if (!in_use) return {};
  return tl::unexpected((directory / kMetricsFileName).string() +
                        " is the database of a job, or in use; expected another --output-dirpath");
}

class Csv2dbSubcommand : public CsvConversion {
 public:
  std::string usage() const override { return "csv2db [RUN] [--output-dirpath DIR] [OPTIONS]"; }
  std::string summary() const override { return "Make an SQLite database from CSV files"; }
  std::string details() const override {
    return "Makes DIR/monitor_metrics.db, with the tables of msprobe's csv2db and the views of gradmon. A\n"
           "file of an earlier conversion is replaced once the new one is complete. Without\n"
           "--output-dirpath DIR is {time}_csv2db in the job's output directory. gradmonctl query reads it.\n"
           "\n"
           "examples:\n"
           "  gradmonctl convert csv2db monitor_output\n"
           "  gradmonctl convert csv2db monitor_output --data-type-list actv,other \\\n"
           "      --step-partition 1000 --output-dirpath job\n"
           "  gradmonctl query --metric actv --op norm job";
  }
  Arguments arguments() override {
    Arguments arguments = CsvConversion::arguments();
    Argument partition{"--step-partition,--step_partition", &step_partition_,
                       "steps of one table (default: 500)", "N"};
    partition.least = kLeastPartition;
    partition.most = kMostPartition;
    arguments.push_back(std::move(partition));
    return arguments;
  }

 protected:
  tl::expected<void, std::string> choose_output(const ConversionTasks& tasks,
                                                Conversion& conversion) override {
    const fs::path directory = output_directory_of(request(), "csv2db", Place::within);
    std::error_code ignored;
    const bool is_there = fs::is_directory(directory, ignored);
    if (is_there && fs::exists(directory / kMetricsFileName, ignored)) {
      if (auto checked = may_be_replaced(directory); !checked) return checked;
    }
    conversion.target = is_there ? directory / kMetricsFileName : directory;
    if (is_there) conversion.earlier = UnfinishedOutput::Earlier::file;
    const DatabaseOptions options{step_partition_, static_cast<int>(request().process_num)};
    conversion.write = [&tasks, options, is_there](const fs::path& path, ConversionMeter& meter,
                                                   Problems& problems) -> tl::expected<void, std::string> {
      if (is_there) return write_database(tasks, path, options, meter, problems);
      if (auto made = make_directories(path); !made) return made;
      return write_database(tasks, path / kMetricsFileName, options, meter, problems);
    };
    return {};
  }

 private:
  std::int64_t step_partition_ = kPartitionSteps;
};

}  // namespace

std::unique_ptr<Subcommand> csv2db_subcommand() { return std::make_unique<Csv2dbSubcommand>(); }

}  // namespace gradmon
