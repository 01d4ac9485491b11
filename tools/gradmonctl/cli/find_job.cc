// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/find_job.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>

#include "control/host/environment.h"
#include "control/hub/transport/bus.h"
#include "control/hub/transport/command_client.h"
#include "tools/gradmonctl/cli/connect.h"
#include "tools/gradmonctl/cli/listing.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {

std::string output_directory(const JobSelector& selector) {
  if (!selector.output_dir.empty()) return selector.output_dir;
  const std::string chosen = environment_text("MONITOR_OUTPUT_DIR");
  return chosen.empty() ? "monitor_output" : chosen;
}

std::string chosen_name(const JobSelector& selector) {
  if (!selector.job.empty()) return selector.job;
  return selector.output_dir.empty() ? environment_text("GRADMON_JOB") : "";
}

std::vector<JobEntry> jobs_named(const std::string& name, std::vector<JobEntry> jobs) {
  const auto keep = [&jobs](auto&& wanted) {
    std::vector<JobEntry> kept;
    std::copy_if(jobs.begin(), jobs.end(), std::back_inserter(kept), wanted);
    return kept;
  };
  auto named = keep([&name](const JobEntry& job) { return job.name == name; });
  if (!named.empty()) return named;
  return keep([&name](const JobEntry& job) { return job.launch_id == name; });
}

tl::expected<std::string, JobLookupError> only_job(const LiveJobs& live, const std::string& which) {
  std::vector<JobEntry> jobs;
  const auto runs = [&live](const JobEntry& job) { return live.ended.count(job.endpoint) == 0; };
  std::copy_if(live.jobs.begin(), live.jobs.end(), std::back_inserter(jobs), runs);
  if (jobs.empty()) jobs = live.jobs;
  if (jobs.size() == 1) return jobs.front().endpoint;
  if (jobs.empty() && !live.denied.empty()) {
    std::string message;
    for (const std::string& line : live.denied) message += printable(line) + '\n';
    return tl::make_unexpected(JobLookupError{kExitNotAllowed, message});
  }
  if (jobs.empty() && !live.unanswered.empty()) {
    std::string message = "no job " + which + " answered:\n";
    for (const std::string& line : live.unanswered) message += printable(line) + '\n';
    return tl::make_unexpected(JobLookupError{kExitNoAnswer, message});
  }
  if (jobs.empty()) {
    return tl::make_unexpected(JobLookupError{
        kExitNoAnswer, "no live job " + which + " (gradmonctl jobs lists yours; --job, --output-dir or " +
                           "--endpoint chooses one)"});
  }
  TextTable table({"<endpoint", "<name", "<host", "<started", "<launch"});
  for (const JobEntry& job : jobs) {
    const std::string name = job.name.empty() ? "-" : job.name;
    table.add({job.endpoint, name, job.host, utc_text(job.started), job.launch_id});
  }
  return tl::make_unexpected(JobLookupError{kExitUsage, std::to_string(jobs.size()) + " live jobs " + which +
                                                            "; choose one with --job or --endpoint\n" +
                                                            table.text()});
}

namespace {

std::string display_name(const JobEntry& job) {
  return printable(job.name.empty() ? "launch " + job.launch_id : job.name);
}

// A silent hub may serve another job: then no job is known to be the only one.
tl::expected<std::string, JobLookupError> job_here_or_only_job(const std::string& directory,
                                                               const std::string& there, std::string* taken) {
  const HubReplies replies = query_all_hubs(writes_into(directory));
  const LiveJobs here = live_jobs(directory, replies);
  const LiveJobs all = jobs_of_this_host(replies);
  if (!here.jobs.empty() || all.jobs.empty() || !all.unanswered.empty()) return only_job(here, there);
  auto endpoint = only_job(all, "of this user on this host");
  if (endpoint && taken != nullptr) {
    const auto is_it = [&](const JobEntry& job) { return job.endpoint == *endpoint; };
    *taken = "no live job " + there + ": this is your only one, " +
             display_name(*std::find_if(all.jobs.begin(), all.jobs.end(), is_it));
  }
  return endpoint;
}

}  // namespace

std::string only_live_job() {
  const LiveJobs all = jobs_of_this_host(query_all_hubs([](const Status&) { return true; }));
  return all.jobs.size() == 1 && all.unanswered.empty() && all.ended.empty() ? display_name(all.jobs.front())
                                                                             : "";
}

tl::expected<std::string, JobLookupError> find_endpoint(const JobSelector& selector, std::string* taken) {
  if (!selector.endpoint.empty()) return selector.endpoint;
  const std::string given = environment_text("GRADMON_ENDPOINT");
  if (selector.output_dir.empty() && selector.job.empty() && !given.empty()) return given;
  const std::string directory = output_directory(selector);
  const std::string name = chosen_name(selector);
  const std::string there = "with the output directory " + printable(directory);
  const bool chosen = !selector.output_dir.empty() || !environment_text("MONITOR_OUTPUT_DIR").empty();
  if (name.empty() && !chosen) return job_here_or_only_job(directory, there, taken);
  if (name.empty()) return only_job(live_jobs(directory), there);
  const std::string named = "named " + printable(name);
  const auto with_name = [&name](LiveJobs live) {
    live.jobs = jobs_named(name, std::move(live.jobs));
    return live;
  };
  if (!selector.output_dir.empty()) return only_job(with_name(live_jobs(directory)), named + ' ' + there);
  const HubReplies replies = query_all_hubs(
      [&name](const Status& status) { return status.name == name || status.launch_id == name; });
  const LiveJobs here = with_name(jobs_of_this_host(replies));
  return only_job(here.jobs.empty() ? with_name(live_jobs(directory, replies)) : here, named);
}

namespace {

std::string usual_directory(const std::string& endpoint) {
  if (environment_text("GRADMON_INSECURE_LOOPBACK") == "1" && is_loopback(endpoint)) return "";
  const std::string home = environment_text("HOME");
  std::string base = environment_text("XDG_CONFIG_HOME");
  if (base.empty() && !home.empty()) base = home + "/.config";
  if (base.empty()) return "";
  const std::string directory = base + "/gradmon/keys";
  std::error_code error;
  return std::filesystem::is_directory(directory, error) ? directory : "";
}

}  // namespace

std::string key_directory(const JobSelector& selector, const std::string& endpoint) {
  const std::string directory = selector.keys.empty() ? environment_text("GRADMON_KEYS") : selector.keys;
  return directory.empty() ? usual_directory(endpoint) : directory;
}

tl::expected<std::optional<ClientKeys>, std::string> find_keys(const JobSelector& selector,
                                                               const std::string& endpoint) {
  if (!is_tcp(endpoint)) return std::optional<ClientKeys>{};
  const std::string directory = key_directory(selector, endpoint);
  if (directory.empty()) return std::optional<ClientKeys>{};
  auto keys = read_operator_keys(directory);
  if (!keys) return tl::unexpected(keys.error());
  return std::optional<ClientKeys>(std::move(*keys));
}

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
