// SPDX-License-Identifier: Apache-2.0
#include "control/host/alert_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "control/alerts/alert_json.h"
#include "control/files/checked_file.h"
#include "control/files/descriptor.h"
#include "control/files/durable_file.h"
#include "control/files/make_directories.h"
#include "control/host/history_file.h"
#include "control/log.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string line_of(const AlertHistory::Kept& kept) {
  Json json = json_of(kept.alert);
  json["process_id"] = kept.process_id;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<AlertHistory::Kept> kept_in(const std::string& line) {
  try {
    const auto json = nlohmann::json::parse(line);
    auto alert = alert_from(json);
    if (!alert) return {};
    return AlertHistory::Kept{std::move(*alert), json.value("process_id", "")};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

std::string objection(const struct stat& found) {
  const bool fine =
      S_ISREG(found.st_mode) && found.st_uid == geteuid() && found.st_size <= 2 * kMostAlertFileBytes;
  return fine ? "" : "expected a regular file of this user";
}

void read_file(const fs::path& file, std::vector<AlertHistory::Kept>& into) {
  const auto text = read_checked_file(file, O_NOFOLLOW, objection);
  if (!text) return;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (auto kept = kept_in(line)) into.push_back(std::move(*kept));
  }
}

// The lines of {path}.1, which is about to be replaced, with the first alert of a rule and step.
std::string first_lines(const fs::path& path, std::size_t most_bytes) {
  AlertHistory history(1);
  history.restore(read_alerts(path));
  std::set<std::uint64_t> first;
  for (const RankAlert& alert : history.first()) first.insert(alert.number);
  std::vector<AlertHistory::Kept> replaced;
  read_file(rotated(path), replaced);
  std::string lines;
  for (const AlertHistory::Kept& kept : replaced) {
    if (first.count(kept.alert.number) > 0 && lines.size() < most_bytes) lines += line_of(kept);
  }
  return lines;
}

// If it is not valid, errno has the cause.
Descriptor open_to_append(const fs::path& path, struct stat& found) {
  Descriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0640));
  if (file.valid() &&
      (::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_uid != geteuid())) {
    errno = EPERM;
    file.reset();
  }
  return file;
}

bool is_older(const AlertHistory::Kept& a, const AlertHistory::Kept& b) {
  return a.alert.number < b.alert.number;
}

}  // namespace

tl::expected<void, std::string> append_alerts(const fs::path& path,
                                              const std::vector<AlertHistory::Kept>& alerts,
                                              std::int64_t most_bytes) {
  std::string lines;
  for (const AlertHistory::Kept& kept : alerts) lines += line_of(kept);
  if (auto made = make_directories(path.parent_path()); !made) return made;
  struct stat found {};
  Descriptor file = open_to_append(path, found);
  if (file.valid()) {
    const auto most = static_cast<std::size_t>(most_bytes);
    const bool full = static_cast<std::size_t>(found.st_size) + lines.size() > most;
    const std::string first = full ? first_lines(path, most / 4) : "";
    const std::string dropped = make_room(path, lines.size(), most);
    if (!dropped.empty()) log_warn(rotated(path).string() + " is replaced: the oldest alerts are dropped");
    lines.insert(0, dropped.empty() ? "" : dropped + first);
    file = open_to_append(path, found);
  }
  if (file.valid() && ends_within_a_line(file.get())) lines.insert(0, "\n");
  const bool written = file.valid() && write_all(file.get(), lines);
  if (written && file.close()) return {};
  std::string cause = path.string() + ": " + std::strerror(errno);
  // The caller writes all of them again later.
  if (file.valid() && ::ftruncate(file.get(), found.st_size) != 0) cause += "; a part of them is in the file";
  return tl::unexpected(std::move(cause));
}

std::vector<AlertHistory::Kept> read_alerts(const fs::path& path) {
  std::vector<AlertHistory::Kept> all;
  read_file(rotated(path), all);
  read_file(path, all);
  std::stable_sort(all.begin(), all.end(), is_older);
  const auto repeated = [](const auto& a, const auto& b) { return !is_older(a, b); };
  all.erase(std::unique(all.begin(), all.end(), repeated), all.end());
  return all;
}

tl::expected<std::vector<AlertHistory::Kept>, std::string> alerts_from_files(const fs::path& run) {
  const auto job = job_register(run);
  if (!job) return tl::unexpected(job.error());
  return read_alerts(*job / "alerts.jsonl");
}

}  // namespace gradmon
