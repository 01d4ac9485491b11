// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/history_access.h"

#include <optional>
#include <system_error>

#include "control/client/access_denial.h"

namespace gradmon {

namespace fs = std::filesystem;

std::string history_denial(const fs::path& output_dir) {
  const fs::path jobs = output_dir / ".gradmon";
  for (const fs::path& place : {output_dir, jobs}) {
    if (std::string denial = access_denial(place, Access::read); !denial.empty()) return denial;
  }
  std::string of_newest;
  std::optional<fs::file_time_type> newest;  // of the files whose time can be read; they take precedence
  std::error_code error;
  for (fs::directory_iterator job(jobs, error), end; !error && job != end; job.increment(error)) {
    const fs::path history = job->path() / "history.jsonl";
    std::error_code unseen;
    const auto time = fs::last_write_time(history, unseen);
    std::string denial = access_denial(history, Access::read);
    if (unseen && (newest || denial.empty())) continue;
    if (!unseen && newest && time <= *newest) continue;
    of_newest = std::move(denial);
    if (!unseen) newest = time;
  }
  return of_newest;
}

}  // namespace gradmon
