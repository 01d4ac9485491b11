// SPDX-License-Identifier: Apache-2.0
#include "control/host/old_jobs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "control/host/hub_lock.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using WallClock = std::chrono::system_clock;

struct Found {
  fs::path path;
  WallClock::time_point changed;
};

WallClock::time_point changed_at(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? WallClock::from_time_t(status.st_mtime)
                                             : WallClock::time_point{};
}

// A directory that holds other files is kept.
void remove_job(const fs::path& path) {
  const JobDirectory directory{path};
  const auto lock = HubLock::acquire(directory);
  if (!lock) return;
  for (const fs::path& file : {directory.socket(), directory.alerts(), directory.decisions(),
                               directory.keys(), directory.log(), directory.lock()}) {
    // hub.log.1 is the previous log; a killed hub leaves decisions.new and keys.new.
    for (const char* suffix : {".1", ".new", ""}) ::unlink((file.string() + suffix).c_str());
  }
  ::rmdir(path.c_str());
}

// A job in static mode has alerts only.
constexpr const char* kFilesOfAnEpoch[] = {"history.jsonl", "history.jsonl.1", "alerts.jsonl",
                                           "alerts.jsonl.1"};

void remove_history(const fs::path& epoch) {
  for (const char* file : kFilesOfAnEpoch) ::unlink((epoch / file).c_str());
  ::rmdir(epoch.c_str());
}

template <class Remove>
void remove_old(std::vector<Found> found, const RetentionPolicy& policy, Remove remove) {
  const auto now = WallClock::now();
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.changed > b.changed; });
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto age = now - found[i].changed;
    if (age >= policy.min_age && (age >= policy.max_age || i >= policy.max_count)) remove(found[i].path);
  }
}

}  // namespace

void remove_old_jobs(const JobDirectory& own, const JobBases& bases, const RetentionPolicy& policy) {
  std::vector<Found> found;
  for (const JobDirectory& other : find_job_directories(bases).directories) {
    if (other.path == own.path) continue;
    found.push_back(
        {other.path, std::max({changed_at(other.path), changed_at(other.log()), changed_at(other.lock())})});
  }
  remove_old(std::move(found), policy, remove_job);
}

void remove_old_histories(const fs::path& output_dir, const std::set<std::string>& running,
                          const RetentionPolicy& policy) {
  std::vector<Found> found;
  std::error_code error;
  for (const fs::directory_entry& epoch : fs::directory_iterator(output_dir / ".gradmon", error)) {
    WallClock::time_point changed{};
    for (const char* file : kFilesOfAnEpoch) changed = std::max(changed, changed_at(epoch.path() / file));
    const bool runs = running.count(epoch.path().filename().string()) != 0;
    if (runs || changed == WallClock::time_point{}) continue;
    found.push_back({epoch.path(), changed});
  }
  remove_old(std::move(found), policy, remove_history);
}

}  // namespace gradmon
