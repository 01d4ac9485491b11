// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/rendezvous.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "control/files/descriptor.h"
#include "control/files/file_access.h"
#include "control/host/job_directory.h"
#include "control/host/json_field.h"
#include "control/text/hash.h"

namespace gradmon {
namespace {

constexpr off_t kMostBytes = 64 * 1024;

std::string objection(const struct stat& status) {
  const bool ours = status.st_uid == geteuid() || status.st_uid == 0;
  const bool trusted = S_ISREG(status.st_mode) && ours && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
                       status.st_size <= kMostBytes;
  return trusted ? "" : "not trusted";
}

constexpr std::size_t kMostNotes = 20'000;
constexpr std::string_view kExtension = ".hub";
constexpr std::size_t kHashDigits = 16;

fs::path file_of(const fs::path& output_dir, const HubNote& note) {
  // The hash of the key makes the name unique, even among hosts of the same name.
  static constexpr char digits[] = "0123456789abcdef";
  const std::uint64_t hash = fnv_hash(note.key);
  std::string hex;
  for (int shift = 60; shift >= 0; shift -= 4) hex += digits[(hash >> static_cast<unsigned>(shift)) & 15U];
  return jobs_directory(output_dir) / (job_file_name(note.launch_id) + "." + hex + std::string(kExtension));
}

void each_note(const fs::path& output_dir, const std::string& launch_id,
               const std::function<void(const fs::path&)>& take) {
  const std::string beginning = job_file_name(launch_id) + ".";
  std::error_code error;
  std::size_t looked_at = 0;
  for (fs::directory_iterator at(jobs_directory(output_dir), error), end; !error && at != end;
       at.increment(error)) {
    if (++looked_at > kMostNotes) return;
    const std::string name = at->path().filename().string();
    // Checks the length, too: names of another job's notes may begin with this job's name and a dot.
    const bool of_job = name.size() == beginning.size() + kHashDigits + kExtension.size();
    if (of_job && name.rfind(beginning, 0) == 0 && at->path().extension() == kExtension) take(at->path());
  }
}

}  // namespace

std::string read_trusted_file(const fs::path& file) {
  return read_checked_file(file, O_NOFOLLOW, objection).value_or("");
}

Result<void> replace_trusted_file(const fs::path& file, const std::string& text) {
  if (read_trusted_file(file) == text) return {};
  if (auto made = make_directories(file.parent_path()); !made) return made;
  return replace_file(file, text, 0644);
}

namespace {

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
std::optional<FileTime> directory_clock(const fs::path& directory) {
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
  const FileTime now = directory_clock(jobs_directory(output_dir)).value_or(newest);
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

Result<void> write_entry(const fs::path& output_dir, const JobEntry& job) {
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
  const auto now = directory_clock(jobs_directory(output_dir));
  if (!now) return launches;
  each_file(output_dir, [&](const fs::path& file) {
    if (*now - touched_at(file) < min_age) return;
    const auto job = parse_entry(read_trusted_file(file));
    if (job && ::unlink(file.c_str()) == 0) launches.push_back(job->launch_id);
  });
  return launches;
}

std::string to_text(const HubNote& note) {
  const Json json{{"launch_id", note.launch_id}, {"host", note.host}, {"key", note.key}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<HubNote> parse_note(const std::string& text, const std::string& launch_id) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return {};
  HubNote note{field<std::string>(json, "launch_id"), field<std::string>(json, "host"),
               field<std::string>(json, "key")};
  if (note.launch_id != launch_id || note.key.empty()) return {};
  return note;
}

Result<void> write_note(const fs::path& output_dir, const HubNote& note) {
  return replace_trusted_file(file_of(output_dir, note), to_text(note));
}

void remove_note(const fs::path& output_dir, const HubNote& note) {
  unlink(file_of(output_dir, note).c_str());
}

std::vector<HubNote> read_new_notes(const fs::path& output_dir, const std::string& launch_id,
                                    std::set<std::string>& seen) {
  std::vector<HubNote> notes;
  each_note(output_dir, launch_id, [&](const fs::path& file) {
    if (seen.count(file.filename().string()) != 0) return;
    auto note = parse_note(read_trusted_file(file), launch_id);
    if (!note) return;
    seen.insert(file.filename().string());
    notes.push_back(std::move(*note));
  });
  return notes;
}

void remove_notes(const fs::path& output_dir, const std::string& launch_id) {
  each_note(output_dir, launch_id, [](const fs::path& file) { unlink(file.c_str()); });
}

namespace {

// "" for a loopback address that is refused, for a link-local IPv6 address (it needs an interface name), and
// for an address that is not IP.
std::string text_of(const sockaddr& address, Loopback loopback) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof v4);
    if (ntohl(v4.sin_addr.s_addr) >> 24U == 127 && loopback == Loopback::refused) return "";
    return inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size()) != nullptr ? text.data() : "";
  }
  if (address.sa_family != AF_INET6) return "";
  sockaddr_in6 v6{};
  std::memcpy(&v6, &address, sizeof v6);
  if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) return "";
  if (IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) && loopback == Loopback::refused) return "";
  return inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size()) != nullptr ? text.data() : "";
}

// connect() on a UDP socket sends no packet; the kernel only chooses the route.
std::string source_towards(const addrinfo& to, Loopback loopback) {
  const Descriptor fd(socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (!fd.valid() || connect(fd.get(), to.ai_addr, to.ai_addrlen) != 0) return "";
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) return "";
  return text_of(reinterpret_cast<const sockaddr&>(own), loopback);
}

std::string first_of_an_interface() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(found, freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
      if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family || (at->ifa_flags & IFF_UP) == 0)
        continue;
      if (std::string text = text_of(*at->ifa_addr, Loopback::refused); !text.empty()) return text;
    }
  }
  return "";
}

}  // namespace

std::string local_address_towards(const std::string& host, Loopback loopback) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (!host.empty() && getaddrinfo(host.c_str(), "1", &hints, &found) == 0) {
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, freeaddrinfo);
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
      if (std::string own = source_towards(*at, loopback); !own.empty()) return own;
    }
  }
  return first_of_an_interface();
}

}  // namespace gradmon
