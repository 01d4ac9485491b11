// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/find_job.h"

#include <cstdlib>

#include "tools/gradmonctl/printable.h"
#include "tools/gradmonctl/text_table.h"
#include "tools/gradmonctl/time_text.h"

namespace gradmon {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::string output_directory(const JobPlace& place) {
  if (!place.output_dir.empty()) return place.output_dir;
  const std::string chosen = variable("MONITOR_OUTPUT_DIR");
  return chosen.empty() ? "./monitor_output" : chosen;
}

tl::expected<std::string, NoJob> only_job(const std::vector<JobEntry>& jobs, const std::string& directory) {
  if (jobs.size() == 1) return jobs.front().endpoint;
  if (jobs.empty()) {
    return tl::make_unexpected(NoJob{
        kExitNoAnswer,
        "no live job in " + printable(directory) + "/gradmon.json (--output-dir or --endpoint says where)"});
  }
  const auto left = TextTable::Align::left;
  TextTable table({{"endpoint", left}, {"host", left}, {"pid"}, {"started", left}, {"launcher", left}});
  for (const JobEntry& job : jobs) {
    table.add({job.endpoint, job.host, std::to_string(job.pid), utc_text(job.started), job.launcher_id});
  }
  return tl::make_unexpected(
      NoJob{kExitUsage, std::to_string(jobs.size()) + " live jobs in " + printable(directory) +
                            "/gradmon.json; choose one with --endpoint\n" + table.text()});
}

tl::expected<std::string, NoJob> find_endpoint(const JobPlace& place) {
  if (!place.endpoint.empty()) return place.endpoint;
  const std::string given = variable("GRADMON_ENDPOINT");
  if (place.output_dir.empty() && !given.empty()) return given;
  const std::string directory = output_directory(place);
  auto jobs = read_jobs(directory);
  if (!jobs) return tl::make_unexpected(NoJob{kExitNoAnswer, printable(jobs.error())});
  return only_job(live_jobs(std::move(*jobs)), directory);
}

}  // namespace gradmon
