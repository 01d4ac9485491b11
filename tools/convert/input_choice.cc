// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/input_choice.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <system_error>
#include <tuple>
#include <utility>

namespace gradmon {
namespace {

namespace fs = std::filesystem;

bool is_chosen(const InputChoice& choice, const fs::path& directory) {
  if (!choice.from && !choice.to) return true;
  const auto name = parse_rank_directory(directory_name(directory));
  return name && (!choice.from || name->in_year >= *choice.from) &&
         (!choice.to || name->in_year <= *choice.to);
}

}  // namespace

tl::expected<std::vector<RankInput>, std::string> chosen_directories(const InputChoice& choice,
                                                                     Problems& problems) {
  std::error_code ignored;
  std::vector<Run> runs;
  if (fs::is_directory(choice.path, ignored)) {
    auto all = runs_in(choice.path, problems);
    if (!all) return tl::unexpected(all.error());
    runs = std::move(*all);
  }
  if (runs.empty()) {  // a rank's own directory, or a run-ID.json
    auto one = find_run(choice.path, "", problems);
    if (!one) return tl::unexpected(one.error());
    runs.push_back(std::move(*one));
  }
  std::map<int, std::vector<fs::path>> ranks;
  std::size_t found = 0;
  for (const Run& run : runs) {
    for (const RankDirectory& rank : run.ranks) {
      ++found;
      if (is_chosen(choice, rank.path)) ranks[rank.rank].push_back(rank.path);
    }
  }
  if (ranks.empty())
    return tl::unexpected(choice.path.string() + ": none of " + std::to_string(found) +
                          " directories of ranks is in the time range; expected one as " +
                          directory_name(runs.front().ranks.front().path));
  std::vector<RankInput> inputs;
  for (auto& [rank, starts] : ranks) inputs.push_back({rank, std::move(starts)});
  return inputs;
}

std::map<Kind, std::vector<InputFile>> chosen_files(const RankInput& rank, const std::vector<Kind>& kinds,
                                                    Problems& problems) {
  std::map<Kind, std::vector<InputFile>> all;
  for (std::size_t start = 0; start < rank.starts.size(); ++start) {
    for (auto& [kind, files] : kind_files_in(rank.starts[start], problems)) {
      if (!kinds.empty() && !std::binary_search(kinds.begin(), kinds.end(), kind)) continue;
      for (KindFile& file : files) all[kind].push_back({std::move(file), start});
    }
  }
  for (auto& [kind, files] : all) {
    const auto key = [](const InputFile& one) {
      const KindFileName& name = one.file.name;
      return std::tie(name.first_step, name.revision, name.last_step, one.start);
    };
    std::sort(files.begin(), files.end(),
              [&](const InputFile& a, const InputFile& b) { return key(a) < key(b); });
  }
  return all;
}

std::vector<InputFile> ConversionTask::files(Problems& problems) const {
  return std::move(chosen_files(*rank, {kind}, problems)[kind]);
}

ConversionTasks conversion_tasks(const std::vector<RankInput>& ranks, const std::vector<Kind>& kinds,
                                 Problems& problems) {
  ConversionTasks all;
  for (const RankInput& rank : ranks) {
    for (const auto& [kind, files] : chosen_files(rank, kinds, problems)) {
      all.tasks.push_back({&rank, kind});
      for (const InputFile& file : files) {
        struct stat status {};
        if (::stat(file.file.path.c_str(), &status) == 0 && S_ISREG(status.st_mode))
          all.bytes += static_cast<std::uint64_t>(status.st_size);
      }
    }
  }
  return all;
}

}  // namespace gradmon
