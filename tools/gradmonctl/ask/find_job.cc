// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/find_job.h"

#include <algorithm>
#include <iterator>

#include "control/host/environment.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/cli/text_table.h"
#include "tools/gradmonctl/cli/time_text.h"

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
  const auto left = TextTable::Align::left;
  TextTable table({{"endpoint", left}, {"name", left}, {"host", left}, {"started", left}, {"launch", left}});
  for (const JobEntry& job : jobs) {
    const std::string name = job.name.empty() ? "-" : job.name;
    table.add({job.endpoint, name, job.host, utc_text(job.started), job.launch_id});
  }
  return tl::make_unexpected(JobLookupError{kExitUsage, std::to_string(jobs.size()) + " live jobs " + which +
                                                            "; choose one with --job or --endpoint\n" +
                                                            table.text()});
}

namespace {

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
    const JobEntry& job = *std::find_if(all.jobs.begin(), all.jobs.end(), is_it);
    *taken = "no live job " + there + ": this is your only one, " +
             printable(job.name.empty() ? "launch " + job.launch_id : job.name);
  }
  return endpoint;
}

}  // namespace

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

}  // namespace gradmon
