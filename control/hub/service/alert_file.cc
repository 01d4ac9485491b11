// SPDX-License-Identifier: Apache-2.0
#include "control/hub/service/alert_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "control/alerts/alert_json.h"
#include "control/files/checked_file.h"
#include "control/files/descriptor.h"
#include "control/files/durable_file.h"
#include "control/files/make_directories.h"
#include "control/log.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

fs::path older(const fs::path& path) { return path.string() + ".1"; }

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

// Not valid: errno says why.
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
    const std::string dropped = make_room(path, lines.size(), static_cast<std::size_t>(most_bytes));
    if (!dropped.empty()) log_warn(older(path).string() + " is replaced: the oldest alerts are dropped");
    lines.insert(0, dropped);
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
  for (const fs::path& file : {older(path), path}) {
    const auto text = read_checked_file(file, O_NOFOLLOW, objection);
    if (!text) continue;
    std::istringstream lines(*text);
    for (std::string line; std::getline(lines, line);) {
      if (auto kept = kept_in(line)) all.push_back(std::move(*kept));
    }
  }
  return all;
}

}  // namespace gradmon
