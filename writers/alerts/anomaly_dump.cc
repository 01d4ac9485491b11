// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/anomaly_dump.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "control/files/file_access.h"
#include "control/log.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kMostDepth = 16;  // in a file that is a dump; deeper ones could exhaust the stack
constexpr int kMostBroken = 100;
constexpr int kIndent = 4;

Json to_json(const Alert& event, const std::vector<int>& group_mates) {
  return {{"rank", event.rank.value},   {"step", event.step},           {"micro_step", event.micro_step},
          {"pp_stage", event.pp_stage}, {"vpp_stage", event.vpp_stage}, {"call_id", event.call_id},
          {"tag_name", event.tag_name}, {"message", event.message},     {"group_mates", group_mates}};
}

std::string to_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

enum class State { absent, readable, full, broken };

struct Present {
  State state = State::absent;
  Json events = Json::object();
  std::size_t bytes = 0;
};

tl::expected<Present, std::string> read_present(const fs::path& file, std::size_t most_bytes) {
  Present present;
  struct stat status {};
  if (::lstat(file.c_str(), &status) != 0) {
    if (errno == ENOENT) return present;
    return path_error(file, errno);
  }
  present.state = State::broken;
  if (!S_ISREG(status.st_mode)) return present;
  if (static_cast<std::size_t>(status.st_size) >= most_bytes) present.state = State::full;
  if (present.state == State::full) return present;
  auto text = read_checked_file(file, O_NOFOLLOW, [](const struct stat&) { return std::string(); });
  if (!text) return tl::unexpected(std::move(text.error()));
  Json events = is_nested_deeper(*text, kMostDepth) ? Json() : Json::parse(*text, nullptr, false);
  if (!events.is_object()) return present;
  present.state = State::readable;
  present.bytes = text->size();
  present.events = std::move(events);
  return present;
}

tl::expected<fs::path, std::string> keep_aside(const fs::path& file) {
  for (int number = 1; number <= kMostBroken; ++number) {
    const fs::path aside = file.string() + ".broken" + (number == 1 ? "" : "-" + std::to_string(number));
    struct stat status {};
    if (::lstat(aside.c_str(), &status) == 0) continue;
    if (::rename(file.c_str(), aside.c_str()) != 0) return path_error(file, errno);
    return aside;
  }
  return tl::unexpected(file.string() + ": not a dump, and there are " + std::to_string(kMostBroken) +
                        " broken files beside it");
}

// The key for this event, or "" if the file already has the event.
std::string free_key(const Json& events, const Alert& event, const Json& entry) {
  const std::string key = anomaly_key(event);
  std::string candidate = key;
  for (int number = 2; events.contains(candidate); ++number) {
    if (events[candidate] == entry) return "";
    candidate = key + "#" + std::to_string(number);
  }
  return candidate;
}

// Returns the number of events without room.
std::size_t add_events(Present& present, const std::vector<Alert>& events,
                       const std::vector<int>& group_mates, const AnomalyFileLimits& limits) {
  std::size_t left_out = 0;
  for (const Alert& event : events) {
    Json entry = to_json(event, group_mates);
    const std::string key = free_key(present.events, event, entry);
    if (key.empty()) continue;
    Json alone = Json::object();
    alone[key] = entry;
    const std::size_t bytes = to_text(alone, kIndent).size();
    if (present.events.size() >= limits.events || present.bytes + bytes > limits.bytes) {
      ++left_out;
      continue;
    }
    present.bytes += bytes;
    present.events[key] = std::move(entry);
  }
  return left_out;
}

// Replaces the file, or keeps a broken one aside. Returns the new path of the broken one.
tl::expected<fs::path, std::string> replace(const fs::path& file, const Present& present) {
  const fs::path beside = file.string() + ".new";
  auto written = write_durably(beside, to_text(present.events, kIndent) + "\n");
  if (!written) return tl::unexpected(std::move(written.error()));
  tl::expected<fs::path, std::string> aside;
  if (present.state == State::broken) aside = keep_aside(file);
  if (aside && ::rename(beside.c_str(), file.c_str()) == 0) return aside;
  if (aside) {
    const int error = errno;
    if (!aside->empty()) static_cast<void>(::rename(aside->c_str(), file.c_str()));
    aside = path_error(file, error);
  }
  ::unlink(beside.c_str());
  return aside;
}

}  // namespace

bool is_nested_deeper(std::string_view json, int most) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++i;
    if (quoted) continue;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > most) return true;
  }
  return false;
}

std::string anomaly_key(const Alert& alert) {
  return alert.tag_name + "_step_" + std::to_string(alert.step) + "_call_" + std::to_string(alert.call_id) +
         "_" + alert.op;
}

tl::expected<Extended, std::string> extend_anomaly_file(const fs::path& file,
                                                        const std::vector<Alert>& alerts,
                                                        const std::vector<int>& group_mates,
                                                        const AnomalyFileLimits& limits) {
  auto present = read_present(file, limits.bytes);
  if (!present) return tl::unexpected(std::move(present.error()));
  Extended extended;
  if (present->state == State::full) {
    extended.left_out = alerts.size();
    return extended;
  }
  const std::size_t before = present->events.size();
  extended.left_out = add_events(*present, alerts, group_mates, limits);
  if (present->events.size() == before) return extended;
  auto aside = replace(file, *present);
  if (!aside) return tl::unexpected(std::move(aside.error()));
  extended.kept_aside = std::move(*aside);
  return extended;
}

std::optional<FileToWrite> AnomalyDump::add(const std::vector<Alert>& events) {
  const std::size_t room = limits_.events - std::min(limits_.events, waiting_.size());
  const std::size_t taken = std::min(room, events.size());
  waiting_.insert(waiting_.end(), events.begin(), events.begin() + static_cast<std::ptrdiff_t>(taken));
  if (taken < events.size()) give_up(events.size() - taken, "anomaly.json cannot be written");
  if (waiting_.empty() || !write_.expired()) return std::nullopt;
  const auto token = std::make_shared<bool>(true);
  write_ = token;
  return FileToWrite{[self = shared_from_this(), token] { return self->write(); }};
}

tl::expected<void, std::string> AnomalyDump::write() {
  auto directory = directory_();
  if (!directory) return tl::unexpected(std::move(directory.error()));
  const std::filesystem::path file = *directory / "anomaly.json";
  auto extended = extend_anomaly_file(file, waiting_, group_mates_, limits_);
  if (!extended) return tl::unexpected(std::move(extended.error()));
  waiting_.clear();
  if (!extended->kept_aside.empty())
    log_warn(file.string() + " was not a dump of alerts; it is now " + extended->kept_aside.string());
  if (extended->left_out > 0) give_up(extended->left_out, file.string() + " is full: rename or remove it");
  return {};
}

void AnomalyDump::give_up(std::size_t events, const std::string& why) {
  given_up_ += events;
  if (!std::exchange(given_up_logged_, true)) log_warn("alerts are missing from the dump: " + why);
}

}  // namespace gradmon
