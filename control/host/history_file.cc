// SPDX-License-Identifier: Apache-2.0
#include "control/host/history_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "control/alerts/alert_report.h"
#include "control/files/descriptor.h"
#include "control/files/file_access.h"
#include "control/log.h"

namespace gradmon {
namespace {

using Json = nlohmann::ordered_json;

std::string json_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Fills the underlying vector directly: ordered_json compares each new key with all others, which is
// quadratic in the number of ranks.
Json to_json(const std::map<int, std::int64_t>& applied) {
  Json::object_t object;
  std::vector<Json::object_t::value_type>& members = object;
  for (const auto& [rank, step] : applied) members.emplace_back(std::to_string(rank), step);
  return object;
}

Json to_json(Journal::Key key, const HistoryEntry& entry) {
  const Json steps{{"first", entry.steps.first().value},
                   {"interval", entry.steps.interval()},
                   {"times", entry.steps.times()}};
  return {{"key", key},
          {"revision", entry.revision.value},
          {"cause", entry.cause},
          {"by", entry.by},
          {"verdict", entry.verdict},
          {"reason", entry.reason},
          {"on", entry.on},
          {"proposed_at", entry.proposed_at},
          {"effective_step", entry.effective_step},
          {"steps", steps},
          {"applied", to_json(entry.applied)},
          {"finished_step", entry.finished_step},
          {"request_id", entry.request_id},
          {"final", entry.final}};
}

HistoryEntry entry_from(const nlohmann::json& json) {
  HistoryEntry entry;
  entry.revision.value = json.value("revision", std::uint64_t{0});
  entry.cause = json.value("cause", "");
  entry.by = json.value("by", "");
  entry.verdict = json.value("verdict", "");
  entry.reason = json.value("reason", "");
  entry.on = json.value("on", false);
  entry.proposed_at = json.value("proposed_at", WallTime{0});
  entry.effective_step = json.value("effective_step", std::int64_t{-1});
  if (const auto steps = json.find("steps"); steps != json.end()) {
    entry.steps = Schedule(Step{steps->value("first", std::int64_t{0})},
                           std::max<std::int64_t>(1, steps->value("interval", std::int64_t{1})),
                           steps->value("times", std::int64_t{0}));
  }
  for (const auto& [rank, step] : json.at("applied").items()) {
    entry.applied[std::stoi(rank)] = step.get<std::int64_t>();
  }
  entry.finished_step = json.value("finished_step", std::int64_t{-1});
  entry.request_id = json.value("request_id", "");
  entry.final = json.value("final", false);
  return entry;
}

// Appends the whole entry whenever it changes. So the file grows with ranks times changes.
Result<void> append(const fs::path& file, std::string lines, std::size_t most_bytes) {
  if (auto made = make_directories(file.parent_path()); !made) return made;
  const std::string dropped = make_room(file, lines.size(), most_bytes);
  if (!dropped.empty()) log_warn(rotated(file).string() + " is replaced: the oldest changes are dropped");
  lines.insert(0, dropped);
  Descriptor opened(open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
  if (opened.valid() && ends_within_a_line(opened.get())) lines.insert(0, "\n");
  if (opened.valid() && write_all(opened.get(), lines) && opened.close()) return {};
  return path_error(file, errno);
}

void for_each_line(std::istream&& in, const std::function<void(const nlohmann::json&)>& take) {
  for (std::string line; std::getline(in, line);) {
    try {
      take(nlohmann::json::parse(line));
    } catch (const nlohmann::json::exception&) {  // An incomplete line.
    } catch (const std::logic_error&) {           // std::stoi
    }
  }
}

struct Entries {
  std::map<Journal::Key, HistoryEntry> by_key;
  std::map<Revision, Journal::Key> key_of;  // of the entry of each revision except 0
};

// A restarted hub records a known revision under a new key, and its `applied` holds only the ranks that still
// run and have reported again. So this merges the entries of one revision.
void take_entry(Journal::Key key, HistoryEntry entry, Entries& entries) {
  const auto known = entries.key_of.find(entry.revision);
  if (known != entries.key_of.end() && known->second != key) {
    HistoryEntry& earlier = entries.by_key.at(known->second);
    entry.applied.insert(earlier.applied.begin(), earlier.applied.end());
    earlier = std::move(entry);
    return;
  }
  HistoryEntry& own = entries.by_key[key];
  if (own.revision != entry.revision) entries.key_of.erase(own.revision);
  if (entry.revision != Revision{}) entries.key_of[entry.revision] = key;
  own = std::move(entry);
}

// The epoch whose file of that name, or an older one, is the newest; "" if none has one.
fs::path newest_epoch(const fs::path& registers, const std::vector<std::string>& names) {
  fs::path newest;
  fs::file_time_type latest{};
  std::error_code error;
  for (const fs::directory_entry& epoch : fs::directory_iterator(registers, error)) {
    for (const std::string& name : names) {
      const fs::path last = epoch.path() / name;
      for (const fs::path& file : {last, rotated(last)}) {  // The first is missing during a rename.
        std::error_code missing;
        const auto time = fs::last_write_time(file, missing);
        if (missing || (!newest.empty() && time <= latest)) continue;
        newest = epoch.path();
        latest = time;
      }
    }
  }
  return newest;
}

}  // namespace

Result<void> append_history(const fs::path& file, const std::map<Journal::Key, HistoryEntry>& entries,
                            std::size_t most_bytes) {
  std::string lines;
  for (const auto& [key, entry] : entries) lines += json_line(to_json(key, entry));
  return append(file, std::move(lines), most_bytes);
}

Result<void> append_switch(const fs::path& file, const SwitchNote& note, std::size_t most_bytes) {
  return append(file,
                json_line({{"epoch", note.epoch},
                           {"rank", note.rank.value},
                           {"revision", note.revision.value},
                           {"step", note.step.value},
                           {"on", note.on},
                           {"at", note.at}}),
                most_bytes);
}

Result<fs::path> job_register(const fs::path& run) {
  std::string epoch;
  const fs::path switches = run / "switches.jsonl";
  for (const fs::path& file : {rotated(switches), switches})
    for_each_line(std::ifstream(file),
                  [&](const nlohmann::json& json) { epoch = json.value("epoch", epoch); });
  const fs::path of_rank = run / ".." / ".gradmon" / fs::path(epoch).filename();
  fs::path found =
      epoch.empty() ? newest_epoch(run / ".gradmon", {"history.jsonl", "alerts.jsonl"}) : of_rank;
  if (found.empty())
    return tl::unexpected("no job has written in " + run.string() +
                          "; expected an output directory of gradmon, or a rank's directory in it");
  return found;
}

Result<std::vector<HistoryEntry>> history_from_files(const fs::path& output_dir) {
  const fs::path job = newest_epoch(output_dir / ".gradmon", {"history.jsonl"});
  if (job.empty()) return tl::unexpected("no history in " + output_dir.string());
  const fs::path history = job / "history.jsonl";
  const std::string epoch = job.filename().string();
  Entries entries;
  for (const fs::path& file : {rotated(history), history}) {
    for_each_line(std::ifstream(file), [&](const nlohmann::json& json) {
      take_entry(json.at("key").get<Journal::Key>(), entry_from(json), entries);
    });
  }

  std::error_code error;
  for (const fs::directory_entry& run : fs::directory_iterator(output_dir, error)) {
    const fs::path switches = run.path() / "switches.jsonl";
    for (const fs::path& file : {rotated(switches), switches}) {
      for_each_line(std::ifstream(file), [&](const nlohmann::json& json) {
        if (json.value("epoch", "") != epoch) return;
        const auto known = entries.key_of.find(Revision{json.value("revision", std::uint64_t{0})});
        if (known == entries.key_of.end()) return;
        entries.by_key.at(known->second).applied[json.at("rank").get<int>()] =
            json.at("step").get<std::int64_t>();
      });
    }
  }
  std::vector<HistoryEntry> all;
  for (auto& [key, entry] : entries.by_key) all.push_back(std::move(entry));
  return all;
}

namespace {

std::string json_line(const AlertHistory::Kept& kept) {
  Json json = to_json(kept.alert);
  json["process_id"] = kept.process_id;
  return json_line(json);
}

std::string objection(const struct stat& found) {
  const bool fine =
      S_ISREG(found.st_mode) && found.st_uid == geteuid() && found.st_size <= 2 * kMostAlertFileBytes;
  return fine ? "" : "expected a regular file of this user";
}

void read_file(const fs::path& file, std::vector<AlertHistory::Kept>& into) {
  const auto text = read_checked_file(file, O_NOFOLLOW, objection);
  if (!text) return;
  for_each_line(std::istringstream(*text), [&](const nlohmann::json& json) {
    if (auto alert = alert_from(json)) into.push_back({std::move(*alert), json.value("process_id", "")});
  });
}

// The lines of {path}.1, which is about to be replaced, with the first alert of a rule and step.
std::string first_lines(const fs::path& path, std::size_t most_bytes) {
  AlertHistory history(1);
  history.restore(read_alerts(path));
  std::set<std::uint64_t> first;
  for (const Alert& alert : history.first()) first.insert(alert.number);
  std::vector<AlertHistory::Kept> replaced;
  read_file(rotated(path), replaced);
  std::string lines;
  for (const AlertHistory::Kept& kept : replaced) {
    if (first.count(kept.alert.number) > 0 && lines.size() < most_bytes) lines += json_line(kept);
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

Result<void> append_alerts(const fs::path& path, const std::vector<AlertHistory::Kept>& alerts,
                           std::int64_t most_bytes) {
  std::string lines;
  for (const AlertHistory::Kept& kept : alerts) lines += json_line(kept);
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

Result<std::vector<AlertHistory::Kept>> alerts_from_files(const fs::path& run) {
  const auto job = job_register(run);
  if (!job) return tl::unexpected(job.error());
  return read_alerts(*job / "alerts.jsonl");
}

}  // namespace gradmon
