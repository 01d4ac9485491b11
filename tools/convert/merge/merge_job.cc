// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/merge/merge_job.h"

#include <map>
#include <memory>
#include <utility>

#include "tools/convert/database/stored_scopes.h"
#include "tools/convert/merge/job_tables.h"
#include "tools/convert/merge/start_writer.h"
#include "writers/sinks/sqlite/metrics_schema.h"

namespace gradmon {
namespace {

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

}  // namespace

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

}  // namespace gradmon
