// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/runs.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>

#include "control/files/file_access.h"
#include "control/text/json_depth.h"
#include "control/text/output_names.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLongestStart =
    600;  // seconds between the first directories of two ranks of one start
constexpr off_t kMaxRunFileBytes = off_t{64} << 20;

struct Found {
  RankDirectoryName name;
  fs::path path;
};

// Calls `each` with every entry of the directory. Returns the reason why it cannot be read, or "".
template <typename Each>
std::string each_entry(const fs::path& directory, Each each) {
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) each(*entry);
  return error ? directory.string() + ": " + error.message() : "";
}

// `started` of a run-{id}.json; nullopt if it cannot be used.
std::optional<std::string> read_started(const fs::path& file, Problems& problems) {
  const auto text = read_checked_file(file, 0, [](const struct stat& status) -> std::string {
    if (!S_ISREG(status.st_mode)) return "not a regular file";
    return status.st_size > kMaxRunFileBytes ? "larger than 64 MiB" : "";
  });
  if (!text) {
    problems.add(file, 0, text.error());
    return std::nullopt;
  }
  const bool deep = is_nested_deeper(*text);
  const auto json = deep ? nlohmann::json() : nlohmann::json::parse(*text, nullptr, false);
  const auto format = json.is_object() ? json.find("format") : json.end();
  if (!json.is_object() || format == json.end() || *format != 1) {
    problems.add(file, 0,
                 (deep ? "expected brackets nested at most " + std::to_string(kMostJsonDepth) + " deep"
                       : std::string("expected a JSON object with \"format\": 1")) +
                     "; only the names of the directories are used");
    return std::nullopt;
  }
  const auto started = json.find("started");
  return started != json.end() && started->is_string() ? started->get<std::string>() : std::string();
}

// Rotates the order of the year so that the longest time without a name comes first.
void order_by_time(std::vector<Found>& found) {
  const auto key = [](const Found& one) { return std::tie(one.name.in_year, one.name.rank, one.name.id); };
  std::sort(found.begin(), found.end(), [&](const Found& a, const Found& b) { return key(a) < key(b); });
  std::size_t first = 0;
  std::int64_t longest =
      found.empty() ? 0 : found.front().name.in_year + kSecondsInLeapYear - found.back().name.in_year;
  for (std::size_t i = 1; i < found.size(); ++i) {
    const std::int64_t gap = found[i].name.in_year - found[i - 1].name.in_year;
    if (gap > longest) first = i;
    longest = std::max(longest, gap);
  }
  std::rotate(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(first), found.end());
}

// Groups the directories, which are sorted by time.
class Grouping {
 public:
  Grouping(const std::vector<Found>& found, std::map<std::string, std::string> started)
      : started_(std::move(started)) {
    std::map<std::string, int> sharing;
    for (const Found& one : found) ++sharing[one.name.id];
    for (const Found& one : found) {
      const bool own_run = sharing[one.name.id] > 1 || started_.count(one.name.id) > 0;
      add(own_run ? by_id(one.name.id) : by_time(one), one);
    }
  }

  std::vector<Run> take() {
    for (Run& run : runs_) {
      std::stable_sort(run.ranks.begin(), run.ranks.end(),
                       [](const RankDirectory& a, const RankDirectory& b) { return a.rank < b.rank; });
    }
    return std::move(runs_);
  }

 private:
  std::size_t new_run() {
    runs_.emplace_back();
    return runs_.size() - 1;
  }
  std::size_t by_id(const std::string& id) {
    const auto [place, is_new] = ids_.try_emplace(id, runs_.size());
    return is_new ? new_run() : place->second;
  }
  std::size_t by_time(const Found& one) {
    const std::int64_t since =
        (one.name.in_year - last_in_year_ + kSecondsInLeapYear) % kSecondsInLeapYear;  // also over New Year
    const bool same_start = alone_ && ranks_.count(one.name.rank) == 0 && since <= kLongestStart;
    if (!same_start) {
      alone_ = new_run();
      ranks_.clear();
    }
    ranks_.insert(one.name.rank);
    last_in_year_ = one.name.in_year;
    return *alone_;
  }
  void add(std::size_t index, const Found& one) {
    Run& run = runs_[index];
    if (run.ranks.empty() || one.name.rank < run.ranks.front().rank) run.id = one.name.id;
    if (run.ranks.empty()) {
      const auto started = started_.find(one.name.id);
      run.started = started == started_.end() || started->second.empty() ? one.name.time : started->second;
    }
    run.ranks.push_back({one.name.rank, one.path});
  }

  const std::map<std::string, std::string> started_;  // by id
  std::vector<Run> runs_;
  std::map<std::string, std::size_t> ids_;
  // The run of directories with unshared ids.
  std::optional<std::size_t> alone_;
  std::set<int> ranks_;
  std::int64_t last_in_year_ = 0;
};

std::string ids_of(const std::vector<Run>& runs) {
  std::string ids;
  for (const Run& run : runs) ids += (ids.empty() ? "" : ", ") + run.id;
  return ids;
}

}  // namespace

tl::expected<std::vector<Run>, std::string> runs_in(const fs::path& output_dir, Problems& problems) {
  std::vector<Found> found;
  std::map<std::string, std::string> started;
  const std::string error = each_entry(output_dir, [&](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (auto parsed = parse_rank_directory(name); parsed && entry.is_directory(ignored))
      found.push_back({std::move(*parsed), entry.path()});
    if (const std::string id = id_of_run_file(name); !id.empty()) {
      if (auto time = read_started(entry.path(), problems)) started[id] = std::move(*time);
    }
  });
  if (!error.empty()) return tl::unexpected(error);
  order_by_time(found);
  return Grouping(found, std::move(started)).take();
}

fs::path default_output_dir() {
  const char* const directory = std::getenv("MONITOR_OUTPUT_DIR");
  return directory != nullptr && *directory != '\0' ? directory : "monitor_output";
}

std::string directory_name(const fs::path& directory) {
  std::error_code ignored;
  const fs::path full = fs::absolute(directory, ignored).lexically_normal();
  return (full.has_filename() ? full : full.parent_path()).filename().string();
}

tl::expected<Run, std::string> find_run(const fs::path& path, const std::string& id, Problems& problems) {
  constexpr const char* kExpected =
      "; expected the output directory of a job (monitor_output), with directories such as "
      "Nov24_12-04-37-rank0-1a2b3c4d, or one of these directories";
  const std::string id_of_file = id_of_run_file(path.filename().string());
  std::error_code ignored;
  if (!id_of_file.empty() && fs::is_regular_file(path, ignored))
    return find_run(path.has_parent_path() ? path.parent_path() : ".", id_of_file, problems);

  auto runs = runs_in(path, problems);
  if (!runs) return tl::unexpected(runs.error() + kExpected);
  if (runs->empty()) {
    const auto name = parse_rank_directory(directory_name(path));
    if (!name && kind_files_in(path, problems).empty())
      return tl::unexpected(path.string() + ": no directory of a rank and no CSV file of gradmon in it" +
                            kExpected);
    Run one;
    one.id = name ? name->id : "";
    one.started = name ? name->time : "";
    one.ranks.push_back({name ? name->rank : 0, path});
    return one;
  }
  if (id.empty()) return std::move(runs->back());
  for (Run& run : *runs) {
    if (run.id == id) return std::move(run);
  }
  return tl::unexpected(path.string() + ": no run " + id + "; there are: " + ids_of(*runs));
}

std::map<Kind, std::vector<KindFile>> kind_files_in(const fs::path& directory, Problems& problems) {
  std::map<Kind, std::vector<KindFile>> files;
  const std::string error = each_entry(directory, [&](const fs::directory_entry& entry) {
    if (const auto name = parse_kind_file(entry.path().filename().string()))
      files[name->kind].push_back({*name, entry.path()});
  });
  if (!error.empty()) problems.add(directory, 0, "cannot read all files: " + error);
  for (auto& [kind, list] : files) {
    const auto key = [](const KindFile& file) {
      return std::tie(file.name.first_step, file.name.revision, file.name.last_step, file.path);
    };
    std::sort(list.begin(), list.end(),
              [&](const KindFile& a, const KindFile& b) { return key(a) < key(b); });
  }
  return files;
}

}  // namespace gradmon
