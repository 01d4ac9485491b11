// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/history_access.h"

#include <optional>
#include <system_error>

#include "control/client/access_denial.h"
#include "tools/gradmonctl/ask/connect.h"
#include "tools/gradmonctl/ask/find_job.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {

namespace fs = std::filesystem;

std::string history_denial(const fs::path& output_dir) {
  const fs::path jobs = output_dir / ".gradmon";
  for (const fs::path& place : {output_dir, jobs}) {
    if (std::string denial = access_denial(place, Access::read); !denial.empty()) return denial;
  }
  std::string of_newest;
  std::optional<fs::file_time_type> newest;  // of the files with readable times; they take precedence
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

namespace {

// Returns true if the files of the output directory may replace the answer of a job that was not found. If
// the user named a job, the files may be another job's and would mislead.
bool tell_files(const JobSelector& selector, const JobLookupError& problem) {
  if (problem.code != kExitNoAnswer && problem.code != kExitNotAllowed) return false;
  return chosen_name(selector).empty() || !selector.output_dir.empty();
}

}  // namespace

int with_job_or_files(const JobSelector& selector, const Console& console,
                      const std::function<bool()>& has_files,
                      const std::function<int(const AskJob&)>& command) {
  std::string taken;
  const auto ask = connect(selector, console, &taken);
  if (!taken.empty() && has_files()) {
    const std::string why = "no live job with the output directory " + output_directory(selector);
    return command(failing_ask({kExitNoAnswer, why}));
  }
  report_taken(taken, console);
  if (!ask && !tell_files(selector, ask.error())) return report_no_job(ask.error(), console);
  const std::string denial = ask ? "" : history_denial(output_directory(selector));
  if (!denial.empty()) return report_no_job({kExitNotAllowed, printable(denial)}, console);
  return command(ask ? *ask : failing_ask(ask.error()));
}

}  // namespace gradmon
