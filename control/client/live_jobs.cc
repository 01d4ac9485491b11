// SPDX-License-Identifier: Apache-2.0
#include "control/client/live_jobs.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "control/client/access_denial.h"
#include "control/client/hub_query.h"
#include "control/files/descriptor.h"
#include "control/host/process_identity.h"
#include "control/host/run_in_child.h"
#include "control/host/unix_socket.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kDiskTime{1000};

JobEntry entry_of(const HubReplies::Answer& answer) {
  JobEntry entry;
  entry.epoch = answer.status.epoch;
  entry.launch_id = answer.status.launch_id;
  entry.name = answer.status.name;
  entry.host = host_name();
  entry.endpoint = answer.endpoint;
  entry.started = answer.status.started;
  return entry;
}

// Normalizes the path as text, without access to its disk.
std::string normal(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  std::string text = (error ? path : whole).lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

// What was found on the disk of a directory.
struct OnDisk {
  std::vector<std::size_t> same;  // indices of `others` that are this directory under another path
  std::vector<JobEntry> entries;
  std::string denial;  // from access_denial()
};

// The first character of each piece of the child's answer; an entry begins with a brace.
constexpr char kSame = '=';
constexpr char kDenied = '!';

fs::path canonical_or_none(const fs::path& directory) {
  std::error_code error;
  const fs::path canonical = fs::weakly_canonical(directory, error);
  return error ? fs::path() : canonical;
}

std::string denial_in(const fs::path& directory) {
  for (const fs::path& place : {directory, directory / ".gradmon", directory / ".gradmon" / "jobs"}) {
    if (std::string denial = access_denial(place, Access::read); !denial.empty()) return denial;
  }
  return "";
}

std::optional<OnDisk> scan_directory(const fs::path& directory, const std::vector<std::string>& others) {
  const auto answer = run_in_child(
      [&] {
        std::string text;
        const fs::path wanted = canonical_or_none(directory);
        for (std::size_t i = 0; i < others.size() && !wanted.empty(); ++i) {
          if (canonical_or_none(others[i]) == wanted) text += kSame + std::to_string(i) + '\0';
        }
        for (const JobEntry& job : read_entries(directory)) text += to_text(job) + '\0';
        if (const std::string denial = denial_in(directory); !denial.empty()) text += kDenied + denial + '\0';
        return text;
      },
      kDiskTime);
  if (!answer) return {};
  OnDisk found;
  for (std::size_t at = 0, end = 0; (end = answer->find('\0', at)) != std::string::npos; at = end + 1) {
    const std::string piece = answer->substr(at, end - at);
    if (piece.front() == kSame) {
      found.same.push_back(std::stoul(piece.substr(1)));
    } else if (piece.front() == kDenied) {
      found.denial = piece.substr(1);
    } else if (auto job = parse_entry(piece)) {
      found.entries.push_back(std::move(*job));
    }
  }
  return found;
}

}  // namespace

LiveJobs live_jobs(const fs::path& output_dir) {
  const std::string wanted = normal(output_dir);
  return live_jobs(output_dir,
                   query_all_hubs([&](const Status& status) { return normal(status.output_dir) == wanted; }));
}

LiveJobs live_jobs(const fs::path& output_dir, const HubReplies& replies) {
  LiveJobs live;
  const std::string wanted = normal(output_dir);
  live.unanswered = replies.unresponsive;
  std::vector<std::string> directories;
  for (const HubReplies::Answer& answer : replies.answers) {
    if (normal(answer.status.output_dir) == wanted) live.jobs.push_back(entry_of(answer));
    directories.push_back(answer.status.output_dir);
  }
  if (!live.jobs.empty()) return live;
  auto disk = scan_directory(output_dir, directories);
  if (!disk) live.unanswered.push_back("the disk of " + wanted + " does not answer");
  if (!disk) return live;
  if (!disk->denial.empty()) live.denied.push_back(std::move(disk->denial));
  for (const std::size_t same : disk->same) live.jobs.push_back(entry_of(replies.answers[same]));
  if (!live.jobs.empty()) return live;
  for (JobEntry& job : disk->entries) {
    if (job.host == host_name() || job.address.empty()) continue;
    job.endpoint = job.address;
    live.jobs.push_back(std::move(job));
  }
  return live;
}

LiveJobs jobs_of_this_host(const HubReplies& replies) {
  LiveJobs live;
  live.unanswered = replies.unresponsive;
  for (const HubReplies::Answer& answer : replies.answers) live.jobs.push_back(entry_of(answer));
  return live;
}

std::optional<bool> hub_is_listening(const std::string& endpoint) {
  const auto socket = ipc_path(endpoint);
  if (!socket) return {};
  const auto fd = connect_unix(*socket);
  if (!fd) return false;
  const Descriptor closed(*fd);
  return true;
}

}  // namespace gradmon
