// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "tools/analyse/rows/runs.h"
#include "tools/convert/conversion_run.h"
#include "tools/convert/job_runs.h"
#include "tools/convert/job_tables.h"
#include "tools/convert/start_writer.h"
#include "tools/convert/stored_scopes.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "writers/sinks/metrics_schema.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

// The directory of a rank and run.
struct Start {
  std::size_t run = 0;  // index
  std::filesystem::path directory;
};

// All starts of one rank, the last one first.
tl::expected<void, std::string> merge_rank(int rank, const std::vector<Start>& starts, NewDatabase& database,
                                           JobExtents& extents, ConversionMeter& meter, Problems& problems) {
  StepsOfKinds taken;
  std::vector<std::filesystem::path> directories;
  for (const Start& start : starts) directories.push_back(start.directory);
  const auto names = std::make_shared<NameTable>();
  const auto scopes = std::make_shared<ScopeTable>();
  const StoredScopes stored(directories, problems);
  for (std::size_t kind = 0; kind < kKinds; ++kind) stored.add_to(*scopes, static_cast<Kind>(kind), *names);
  for (auto start = starts.rbegin(); start != starts.rend() && !meter.stop; ++start) {
    StartWriter writer(rank, names, scopes, taken, database, meter, problems);
    if (auto written = writer.write(start->directory); !written) return written;
    extents[{start->run, rank}].add(writer.extent());
    for (std::size_t kind = 0; kind < kKinds; ++kind)
      taken[kind].insert(writer.steps()[kind].begin(), writer.steps()[kind].end());
  }
  return {};
}

// Makes one database of all rows of the consecutive runs, with tables that describe the job (CONVERT.md). If
// several runs have a step and kind on a rank, takes the rows of the last run. Returns when all rows are
// written, or after the meter was stopped. An error names the new file; unreadable input is a problem. One
// thread.
tl::expected<void, std::string> merge_job(const std::vector<JobRun>& runs, const std::filesystem::path& file,
                                          const std::string& version, ConversionMeter& meter,
                                          Problems& problems) {
  auto database = NewDatabase::make(file, kPartitionSteps);
  if (!database) return tl::unexpected(database.error());
  std::map<int, std::vector<Start>> ranks;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const RankDirectory& rank : runs[i].run.ranks) ranks[rank.rank].push_back({i, rank.path});
  }
  JobExtents extents;
  for (const auto& [rank, starts] : ranks) {
    if (auto merged = merge_rank(rank, starts, *database, extents, meter, problems); !merged) return merged;
  }
  if (meter.stop) return {};
  SqliteDatabase& sqlite = database->database();
  if (auto written = write_job_tables(sqlite, runs, extents, problems, version); !written)
    return tl::unexpected(database->describe(written.error()));
  if (auto written = write_job_gaps(sqlite); !written)
    return tl::unexpected(database->describe(written.error()));
  return database->finish();
}

struct MergeRequest {
  std::vector<std::string> runs;
  std::string output;
};

// The bytes of the CSV files and the database in the directory of a rank.
std::uint64_t bytes_in(const fs::path& directory) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    const auto size = entry->is_regular_file(ignored) ? entry->file_size(ignored) : 0;
    if (!ignored && (name == kMetricsFileName || parse_kind_file(name))) bytes += size;
  }
  return bytes;
}

class MergeSubcommand : public SubcommandFor<MergeRequest> {
 public:
  std::string usage() const override { return "merge [RUN...] -o FILE"; }
  std::string summary() const override { return "Make one SQLite database of the output of a whole job"; }
  std::string details() const override {
    return "Takes the databases and CSV files of all ranks. Beside the rows FILE has the job's ranks, "
           "hosts,\n"
           "configs by revision, versions and gaps (tables job_*; job_about says what each one is). Of a\n"
           "step that several runs have collected, the rows of the last RUN are taken. gradmonctl query\n"
           "reads FILE.\n"
           "\n"
           "examples:\n"
           "  gradmonctl convert merge monitor_output -o job.db\n"
           "  gradmonctl convert merge first/run-1a2b3c4d.json second/run-5e6f7a8b.json -o job.db\n"
           "  gradmonctl query --metric grad_reduced --op norm job.db";
  }
  Arguments arguments() override {
    Argument runs{"RUN", &request().runs,
                  "the job's output directories (all their runs, the oldest first),\n"
                  "directories of one rank, or run-ID.json (one run each)\n"
                  "(default: MONITOR_OUTPUT_DIR, else ./monitor_output)"};
    Argument output{"-o,--output", &request().output, "the database that is made; it must not be there yet",
                    "FILE"};
    output.required = true;
    return {runs, output};
  }
  std::string complete() override {
    if (request().runs.empty()) request().runs.push_back(default_output_dir().string());
    return "";
  }
  int perform(const Console& console) override {
    Problems problems;
    const auto runs = job_runs({request().runs.begin(), request().runs.end()}, problems);
    if (!runs) return report_error(runs.error(), console);
    std::set<int> ranks;
    Conversion conversion;
    for (const JobRun& run : *runs) {
      for (const RankDirectory& rank : run.run.ranks) {
        ranks.insert(rank.rank);
        conversion.bytes += bytes_in(rank.path);
      }
    }
    for (const std::string& run : request().runs)
      conversion.input += (conversion.input.empty() ? "" : ", ") + run;
    conversion.ranks.assign(ranks.begin(), ranks.end());
    conversion.target = request().output;
    conversion.write = [&](const fs::path& path, ConversionMeter& meter, Problems& of_rows) {
      return merge_job(*runs, path, GRADMON_VERSION, meter, of_rows);
    };
    return run_conversion(conversion, problems, console);
  }
};

}  // namespace

std::unique_ptr<Subcommand> merge_subcommand() { return std::make_unique<MergeSubcommand>(); }

}  // namespace gradmon
