// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/find_job.h"

#include <algorithm>
#include <iterator>

#include "control/host/environment.h"
#include "tools/gradmonctl/show/printable.h"
#include "tools/gradmonctl/show/text_table.h"
#include "tools/gradmonctl/show/time_text.h"

namespace gradmon {
namespace {

std::string variable(const char* name) { return process_environment(name).value_or(""); }

}  // namespace

std::string output_directory(const JobPlace& place) {
  if (!place.output_dir.empty()) return place.output_dir;
  const std::string chosen = variable("MONITOR_OUTPUT_DIR");
  return chosen.empty() ? "./monitor_output" : chosen;
}

std::string chosen_name(const JobPlace& place) {
  if (!place.job.empty()) return place.job;
  return place.output_dir.empty() ? variable("GRADMON_JOB") : "";
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

tl::expected<std::string, NoJob> only_job(const LiveJobs& live, const std::string& which) {
  const std::vector<JobEntry>& jobs = live.jobs;
  if (jobs.size() == 1) return jobs.front().endpoint;
  if (jobs.empty() && !live.denied.empty()) {
    std::string message;
    for (const std::string& line : live.denied) message += printable(line) + '\n';
    return tl::make_unexpected(NoJob{kExitNotAllowed, message});
  }
  if (jobs.empty() && !live.unanswered.empty()) {
    std::string message = "no job " + which + " has answered:\n";
    for (const std::string& line : live.unanswered) message += printable(line) + '\n';
    return tl::make_unexpected(NoJob{kExitNoAnswer, message});
  }
  if (jobs.empty()) {
    return tl::make_unexpected(NoJob{
        kExitNoAnswer, "no live job " + which + " (gradmonctl jobs lists yours; --job, --output-dir or " +
                           "--endpoint chooses one)"});
  }
  const auto left = TextTable::Align::left;
  TextTable table({{"endpoint", left}, {"name", left}, {"host", left}, {"started", left}, {"launch", left}});
  for (const JobEntry& job : jobs) {
    const std::string name = job.name.empty() ? "-" : job.name;
    table.add({job.endpoint, name, job.host, utc_text(job.started), job.launch_id});
  }
  return tl::make_unexpected(NoJob{kExitUsage, std::to_string(jobs.size()) + " live jobs " + which +
                                                   "; choose one with --job or --endpoint\n" + table.text()});
}

tl::expected<std::string, NoJob> find_endpoint(const JobPlace& place) {
  if (!place.endpoint.empty()) return place.endpoint;
  const std::string given = variable("GRADMON_ENDPOINT");
  if (place.output_dir.empty() && place.job.empty() && !given.empty()) return given;
  const std::string directory = output_directory(place);
  const std::string name = chosen_name(place);
  const std::string there = "with the output directory " + printable(directory);
  if (name.empty()) return only_job(live_jobs(directory), there);
  const std::string named = "named " + printable(name);
  const auto with_name = [&name](LiveJobs live) {
    live.jobs = jobs_named(name, std::move(live.jobs));
    return live;
  };
  if (!place.output_dir.empty()) return only_job(with_name(live_jobs(directory)), named + ' ' + there);
  const LiveJobs here = with_name(jobs_of_this_host(name));
  return only_job(here.jobs.empty() ? with_name(live_jobs(directory)) : here, named);
}

}  // namespace gradmon
