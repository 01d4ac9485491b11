// SPDX-License-Identifier: Apache-2.0
#include "control/hub/rendezvous/job_entry.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "control/host/job_directory.h"
#include "control/host/json_field.h"
#include "control/hub/rendezvous/trusted_file.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kMostJobs = 1000;
constexpr auto kReplace = Json::error_handler_t::replace;

fs::path file_of(const fs::path& output_dir, const std::string& launch_id) {
  return jobs_directory(output_dir) / (job_file_name(launch_id) + ".json");
}

}  // namespace

fs::path jobs_directory(const fs::path& output_dir) { return output_dir / ".gradmon" / "jobs"; }

std::string to_text(const JobEntry& job) {
  const Json json{{"epoch", job.epoch},     {"launch_id", job.launch_id}, {"name", job.name},
                  {"host", job.host},       {"endpoint", job.endpoint},   {"address", job.address},
                  {"key", job.key},         {"started", job.started},     {"trouble", job.trouble}};
  return json.dump(2, ' ', false, kReplace) + "\n";
}

std::optional<JobEntry> parse_entry(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return {};
  JobEntry job;
  job.epoch = field<std::string>(json, "epoch");
  job.launch_id = field<std::string>(json, "launch_id");
  job.name = field<std::string>(json, "name");
  job.host = field<std::string>(json, "host");
  job.endpoint = field<std::string>(json, "endpoint");
  job.address = field<std::string>(json, "address");
  job.key = field<std::string>(json, "key");
  job.started = field<std::int64_t>(json, "started");
  job.trouble = field<std::string>(json, "trouble");
  return job;
}

std::vector<JobEntry> read_entries(const fs::path& output_dir) {
  std::vector<JobEntry> jobs;
  std::error_code error;
  int seen = 0;
  for (fs::directory_iterator at(jobs_directory(output_dir), error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() != ".json" || ++seen > kMostJobs) continue;
    auto job = parse_entry(read_trusted_file(at->path()));
    if (job && !job->endpoint.empty()) jobs.push_back(std::move(*job));
  }
  std::sort(jobs.begin(), jobs.end(), [](const JobEntry& a, const JobEntry& b) { return a.started < b.started; });
  return jobs;
}

std::optional<JobEntry> find_entry(const fs::path& output_dir, const std::string& launch_id) {
  auto job = parse_entry(read_trusted_file(file_of(output_dir, launch_id)));
  return job && job->launch_id == launch_id ? job : std::nullopt;
}

tl::expected<void, std::string> write_entry(const fs::path& output_dir, const JobEntry& job) {
  return replace_trusted_file(file_of(output_dir, job.launch_id), to_text(job));
}

void remove_entry(const fs::path& output_dir, const JobEntry& job) {
  const auto there = find_entry(output_dir, job.launch_id);
  if (there && there->epoch == job.epoch) unlink(file_of(output_dir, job.launch_id).c_str());
}

}  // namespace gradmon
