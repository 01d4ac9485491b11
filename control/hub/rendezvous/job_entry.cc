// SPDX-License-Identifier: Apache-2.0
#include "control/hub/rendezvous/job_entry.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "control/files/descriptor.h"
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

using FileTime = std::chrono::nanoseconds;  // since 1970

FileTime time_of(const struct stat& status) {
  return std::chrono::seconds(status.st_mtim.tv_sec) + FileTime(status.st_mtim.tv_nsec);
}

// Returns zero if the file is missing.
FileTime touched_at(const fs::path& file) {
  struct stat status {};
  return ::lstat(file.c_str(), &status) == 0 ? time_of(status) : FileTime{};
}

// The time of a new file in the directory; unset if it cannot be made.
std::optional<FileTime> clock_of(const fs::path& directory) {
  std::string name = (directory / ".clock.XXXXXX").string();
  const Descriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file.valid()) return {};
  struct stat status {};
  const bool known = ::fstat(file.get(), &status) == 0;
  ::unlink(name.c_str());
  return known ? std::optional(time_of(status)) : std::nullopt;
}

void each_file(const fs::path& output_dir, const std::function<void(const fs::path&)>& take) {
  std::error_code error;
  for (fs::directory_iterator at(jobs_directory(output_dir), error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".json") take(at->path());
  }
}

}  // namespace

fs::path jobs_directory(const fs::path& output_dir) { return output_dir / ".gradmon" / "jobs"; }

std::string to_text(const JobEntry& job) {
  const Json json{{"epoch", job.epoch}, {"launch_id", job.launch_id}, {"name", job.name},
                  {"host", job.host},   {"endpoint", job.endpoint},   {"address", job.address},
                  {"key", job.key},     {"started", job.started},     {"trouble", job.trouble}};
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

std::vector<JobEntry> read_entries(const fs::path& output_dir, std::chrono::seconds max_age) {
  std::vector<std::pair<FileTime, JobEntry>> found;
  FileTime newest{};
  int seen = 0;
  each_file(output_dir, [&](const fs::path& file) {
    if (++seen > kMostJobs) return;
    auto job = parse_entry(read_trusted_file(file));
    if (!job || job->endpoint.empty()) return;
    found.emplace_back(touched_at(file), std::move(*job));
    newest = std::max(newest, found.back().first);
  });
  std::vector<JobEntry> jobs;
  if (found.empty()) return jobs;
  const FileTime now = clock_of(jobs_directory(output_dir)).value_or(newest);
  for (auto& [touched, job] : found) {
    if (now - touched < max_age) jobs.push_back(std::move(job));
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const JobEntry& a, const JobEntry& b) { return a.started < b.started; });
  return jobs;
}

std::optional<JobEntry> find_entry(const fs::path& output_dir, const std::string& launch_id) {
  auto job = parse_entry(read_trusted_file(file_of(output_dir, launch_id)));
  return job && job->launch_id == launch_id ? job : std::nullopt;
}

tl::expected<void, std::string> write_entry(const fs::path& output_dir, const JobEntry& job) {
  const fs::path file = file_of(output_dir, job.launch_id);
  const FileTime before = touched_at(file);
  auto written = replace_trusted_file(file, to_text(job));
  // Passes no times: the file server sets its own.
  if (written && touched_at(file) == before)
    ::utimensat(AT_FDCWD, file.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return written;
}

void remove_entry(const fs::path& output_dir, const JobEntry& job) {
  const auto there = find_entry(output_dir, job.launch_id);
  if (there && there->epoch == job.epoch) unlink(file_of(output_dir, job.launch_id).c_str());
}

std::vector<std::string> remove_old_entries(const fs::path& output_dir, std::chrono::seconds min_age) {
  std::vector<std::string> launches;
  const auto now = clock_of(jobs_directory(output_dir));
  if (!now) return launches;
  each_file(output_dir, [&](const fs::path& file) {
    if (*now - touched_at(file) < min_age) return;
    const auto job = parse_entry(read_trusted_file(file));
    if (job && ::unlink(file.c_str()) == 0) launches.push_back(job->launch_id);
  });
  return launches;
}

}  // namespace gradmon
