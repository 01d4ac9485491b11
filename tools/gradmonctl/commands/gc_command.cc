// SPDX-License-Identifier: Apache-2.0
// gradmonctl gc: removes the output of old jobs. It removes only files of this user with names that gradmon
// gives, in directories with names that gradmon gives. Below an output directory it follows no symbolic link.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/files/descriptor.h"
#include "control/host/child_process.h"
#include "control/hub/transport/rendezvous.h"
#include "control/text/output_names.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/job.h"
#include "tools/gradmonctl/cli/listing.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {

constexpr WallTime kHour = 3'600'000;
constexpr std::chrono::hours kLiveWithin{24};  // a job with an older entry has ended

// A file or a directory that gradmon has made in an output directory.
struct Item {
  std::string path;      // relative to the output directory
  std::string run = {};  // 8 hex digits; "": belongs to no single run
  bool directory = false;
  bool marked = false;            // holds a file that only gradmon writes
  std::vector<Item> within = {};  // its entire contents
  std::int64_t bytes = 0;
  WallTime changed = 0;        // the newest change of the item and its contents
  std::string objection = {};  // the reason to keep it, or ""
};

bool begins(std::string_view name, std::string_view with) { return name.substr(0, with.size()) == with; }

// Returns "" unless the name is exactly that of a rank's directory of gradmon.
std::string run_name(const std::string& name) {
  const auto run = parse_rank_directory(name);
  const bool own = run && is_run_id(run->id) && name == rank_directory_name(run->time, run->rank, run->id);
  return own ? run->id : "";
}

// True if gradmon gives that name to a file in one of its directories. An incomplete file ends in ".new".
bool is_own_file(std::string_view name) {
  if (name.size() > 5 && name.substr(name.size() - 4) == ".new") {
    name.remove_suffix(4);
    if (name.front() == '.') name.remove_prefix(1);
  }
  for (const char* own :
       {"scopes.json", "switches.jsonl", "stack_info.csv", "module_struct.json", "anomaly.json",
        "history.jsonl", "alerts.jsonl", "monitor_metrics.db", "events.out.tfevents."})
    if (begins(name, own)) return true;
  return parse_kind_file(name).has_value();
}

// Sorted. Empty if it is not a directory, or is unreadable.
std::vector<std::string> names_in(int output, const std::string& path) {
  std::vector<std::string> names;
  Descriptor opened(::openat(output, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  DIR* const listing = opened.valid() ? ::fdopendir(opened.release()) : nullptr;
  if (listing == nullptr) return names;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(listing);
  std::sort(names.begin(), names.end());
  return names;
}

// `folders`: the names of directories allowed in it.
Item look(int output, const std::string& path, const std::set<std::string>& folders = {}) {
  Item item{path};
  struct stat found {};
  const bool known = ::fstatat(output, path.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0;
  item.directory = S_ISDIR(found.st_mode);
  item.changed = WallTime{found.st_mtim.tv_sec} * 1000;
  item.bytes = item.directory ? 0 : found.st_size;
  if (!known || !(item.directory || S_ISREG(found.st_mode))) item.objection = "not a regular file";
  if (known && found.st_uid != ::geteuid()) item.objection = "of uid " + std::to_string(found.st_uid);
  if (!item.objection.empty() || !item.directory) return item;
  for (const std::string& name : names_in(output, path)) {
    Item& one = item.within.emplace_back(look(output, path + "/" + name));
    const bool own = one.directory ? folders.count(name) != 0 : is_own_file(name);
    if (one.objection.empty() && !own) one.objection = "gradmon did not write it";
    if (!one.objection.empty()) item.objection = name + ": " + one.objection;
    item.marked = item.marked || name == "scopes.json" || begins(name, "switches.jsonl");
    item.bytes += one.bytes;
    item.changed = std::max(item.changed, one.changed);
  }
  return item;
}

// All output of gradmon there; the directories of a run before its file. A run is as old as its newest change
// on any rank.
std::vector<Item> list_items(int output) {
  std::vector<Item> items;
  std::set<std::string> runs;  // runs with their own file
  for (const std::string& name : names_in(output, ".")) {
    if (is_run_id(id_of_run_file(name))) runs.insert(id_of_run_file(name));
  }
  for (const std::string& name : names_in(output, ".")) {
    if (run_name(name).empty()) continue;
    Item item = look(output, name, {"tensorboard", "flight"});
    item.run = run_name(name);
    if (item.marked || runs.count(item.run) != 0) items.push_back(std::move(item));
  }
  for (const std::string& run : runs) {
    items.push_back(look(output, "run-" + run + ".json"));
    items.back().run = run;
  }
  std::map<std::string, WallTime> newest;
  for (const Item& item : items) newest[item.run] = std::max(newest[item.run], item.changed);
  for (Item& item : items) item.changed = newest[item.run];
  for (const std::string folder : {"module_struct", "anomaly_detected", ".gradmon"}) {
    for (const std::string& name : names_in(output, folder)) {
      const bool epoch = name.size() == 32 && name.find_first_not_of("0123456789abcdef") == name.npos;
      const bool rank = begins(name, "rank") && name.find_first_not_of("0123456789", 4) == name.npos;
      if (folder == ".gradmon" ? epoch : rank) items.push_back(look(output, folder + "/" + name));
    }
  }
  return items;
}

// Returns the reason if a part stays.
std::string remove(int output, const Item& item) {
  for (const Item& one : item.within) {
    if (std::string why = remove(output, one); !why.empty()) return why;
  }
  const int removed = ::unlinkat(output, item.path.c_str(), item.directory ? AT_REMOVEDIR : 0);
  if (removed != 0 && errno != ENOENT) return std::strerror(errno);
  const std::string folder = item.path.substr(0, item.path.find('/'));
  if (item.directory) ::unlinkat(output, folder.c_str(), AT_REMOVEDIR);  // only if it is empty now
  return "";
}

// Returns none for any other text.
std::optional<WallTime> parse_age(std::string_view text) {
  WallTime number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = parsed.ptr;
  const bool valid =
      parsed.ec == std::errc() && (unit == "h" || unit == "d") && number > 0 && number < 100'000;
  return valid ? std::optional(number * (unit == "h" ? 1 : 24) * kHour) : std::nullopt;
}

struct GcRequest {
  std::vector<std::string> directories;
  std::string age;
  WallTime older_than = 0;
  bool dry_run = false;
};

// Items with a newer change are kept. A change since a live job began may be that job's.
WallTime newest_to_remove(const std::string& directory, WallTime older_than, const Console& console) {
  WallTime newest = wall_now() - older_than;
  for (const JobEntry& job : read_entries(directory, kLiveWithin)) {
    newest = std::min(newest, job.started - kHour);  // Clocks of hosts differ.
    console.err << "gradmonctl: "
                << printable(directory + ": kept what has changed since job " + job.launch_id +
                             " began: it is live")
                << '\n';
  }
  return newest;
}

int collect_garbage(const std::string& directory, const GcRequest& request, const Console& console) {
  const Descriptor output(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!output.valid()) return report_error(directory + ": " + std::strerror(errno), console);
  const WallTime newest = newest_to_remove(directory, request.older_than, console);
  std::set<std::string> kept_runs;
  TextTable removed({"KiB", "newest change", "<path"});
  std::int64_t bytes = 0;
  bool any = false;
  int code = kExitDone;
  for (const Item& item : list_items(output.get())) {
    if (item.changed > newest) continue;
    std::string why = item.objection;
    if (!item.directory && kept_runs.count(item.run) != 0) why = "a directory of its run stays";
    if (why.empty() && !request.dry_run) {
      why = remove(output.get(), item);
      if (!why.empty()) code = kExitFailed;
    }
    if (!why.empty()) {
      kept_runs.insert(item.run);
      console.err << "gradmonctl: " << printable(directory + "/" + item.path + ": kept: " + why) << '\n';
      continue;
    }
    removed.add({std::to_string(item.bytes / 1024), utc_text(item.changed), item.path});
    bytes += item.bytes;
    any = true;
  }
  if (any) console.out << removed.text();
  console.out << (request.dry_run ? "would be removed from " : "removed from ") << printable(directory)
              << ": " << bytes / 1024 << " KiB\n";
  return code;
}

}  // namespace

Subcommand gc_subcommand() {
  const auto request = std::make_shared<GcRequest>();
  Argument age{"--older-than", &request->age, "the time since the newest change of a run, as 12h or 30d",
               "AGE"};
  age.required = true;
  return {request,
          "gc [RUN...] --older-than AGE [--dry-run]",
          "Remove the output of jobs that ended long ago",
          {{"RUN", &request->directories,
            "the jobs' output directories\n(default: MONITOR_OUTPUT_DIR, else ./monitor_output)"},
           age,
           {"--dry-run", &request->dry_run, "only list what would be removed"}},
          [request](const Console& console) {
            int code = kExitDone;
            for (const std::string& directory : request->directories)
              code = std::max(code, collect_garbage(directory, *request, console));
            return code;
          },
          [request]() -> std::string {
            const auto parsed = parse_age(request->age);
            if (!parsed)
              return "--older-than: expected hours or days, as 12h or 30d, not \"" + request->age + "\"";
            request->older_than = *parsed;
            if (request->directories.empty()) request->directories.push_back(output_directory({}));
            return "";
          },
          "It removes runs of all ranks, module_struct, anomaly_detected and histories. Output that has\n"
          "changed since a live job began stays. A directory stays as a whole if it holds a symbolic link,\n"
          "a file of another user, or a file that gradmon did not write."};
}

}  // namespace gradmon
