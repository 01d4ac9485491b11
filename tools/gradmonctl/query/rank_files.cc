// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/query/rank_files.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <system_error>
#include <tuple>

#include "control/text/output_names.h"
#include "control/text/time_stamp.h"
#include "writers/sinks/sqlite/metrics_schema.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

// Rank −1 if the name does not end like gradmon's run directories: users put words before it.
RankFile named(const fs::path& directory) {
  RankFile file{directory / kMetricsFileName, -1, ""};
  const std::string whole = directory.filename().string();
  const std::size_t rank = whole.rfind("-rank");
  if (rank == std::string::npos || rank < kTimeStampLength) return file;
  const auto name = parse_rank_directory(std::string_view(whole).substr(rank - kTimeStampLength));
  if (!name || !is_run_id(name->id)) return file;
  file.rank = name->rank;
  file.run_id = name->id;
  return file;
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// The databases in the directories below an output directory.
std::vector<RankFile> files_below(const fs::path& output_dir, std::error_code& error) {
  std::vector<RankFile> files;
  for (fs::directory_iterator entry(output_dir, error), end; !error && entry != end; entry.increment(error)) {
    RankFile file = named(entry->path());
    if (file.rank >= 0 && is_file(file.path)) files.push_back(std::move(file));
  }
  return files;
}

// The ids of runs, sorted by last write, the newest first.
std::vector<std::string> runs_of(const std::vector<RankFile>& files) {
  std::map<std::string, fs::file_time_type> times;
  for (const RankFile& file : files) {
    std::error_code error;
    const auto time = fs::last_write_time(file.path, error);
    const auto of_log = fs::last_write_time(file.path.string() + "-wal", error);
    auto& newest = times.try_emplace(file.run_id, time).first->second;
    newest = std::max(newest, error ? time : std::max(time, of_log));
  }
  std::vector<std::string> runs;
  for (const auto& [run, time] : times) runs.push_back(run);
  std::stable_sort(runs.begin(), runs.end(),
                   [&](const auto& a, const auto& b) { return times[a] > times[b]; });
  return runs;
}

tl::expected<void, std::string> add_output_dir(RankFiles& all, const fs::path& place,
                                               const std::string& run_id) {
  std::error_code error;
  const std::vector<RankFile> files = files_below(place, error);
  if (error) return tl::unexpected(place.string() + ": " + error.message());
  if (files.empty())
    return tl::unexpected(
        place.string() + ": found no " + kMetricsFileName +
        " here or in a directory such as Nov24_08-30-12-rank0-8c0ffee0; expected the output "
        "directory of a job with \"format\": \"sqlite\"");
  const std::vector<std::string> runs = runs_of(files);
  const std::string chosen = run_id.empty() ? runs.front() : run_id;
  if (std::find(runs.begin(), runs.end(), chosen) == runs.end()) {
    std::string known;
    for (const std::string& run : runs) known += (known.empty() ? "" : ", ") + run;
    return tl::unexpected(place.string() + ": found no run " + chosen + "; expected one of " + known);
  }
  for (const RankFile& file : files) {
    if (file.run_id == chosen) all.files.push_back(file);
  }
  all.runs.push_back({place, chosen, runs.size()});
  return {};
}

}  // namespace

tl::expected<RankFiles, std::string> find_rank_files(const std::vector<fs::path>& places,
                                                     const std::string& run_id) {
  RankFiles all;
  for (const fs::path& place : places) {
    std::error_code error;
    const fs::file_status status = fs::status(place, error);
    if (!fs::exists(status)) return tl::unexpected(place.string() + ": No such file or directory");
    const fs::path plain = fs::absolute(place, error).lexically_normal();
    const fs::path directory = plain.has_filename() ? plain : plain.parent_path();
    if (!fs::is_directory(status)) {
      RankFile file = named(directory.parent_path());
      file.path = place;
      all.files.push_back(std::move(file));
    } else if (is_file(place / kMetricsFileName)) {
      RankFile file = named(directory);
      file.path = place / kMetricsFileName;
      all.files.push_back(std::move(file));
    } else if (auto added = add_output_dir(all, place, run_id); !added) {
      return tl::unexpected(added.error());
    }
  }
  std::stable_sort(all.files.begin(), all.files.end(), [](const RankFile& a, const RankFile& b) {
    return std::tie(a.rank, a.path) < std::tie(b.rank, b.path);
  });
  return all;
}

}  // namespace gradmon
