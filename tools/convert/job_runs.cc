// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/job_runs.h"

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <unordered_map>

#include "control/files/file_access.h"
#include "control/text/json_depth.h"

namespace gradmon {
namespace {

// The members of a JSON object in the order of the text, as nlohmann::ordered_map has them. The parser adds
// each in constant time, where ordered_map compares its key with all earlier ones. For parsing and reading:
// nothing else of this library uses the index, and no member may be erased.
template <class Key, class Value, class Less = std::less<Key>,
          class Allocator = std::allocator<std::pair<const Key, Value>>>
class IndexedObject : public nlohmann::ordered_map<Key, Value, Less, Allocator> {
  using OrderedMap = nlohmann::ordered_map<Key, Value, Less, Allocator>;

 public:
  using OrderedMap::OrderedMap;
  IndexedObject() = default;
  IndexedObject(const IndexedObject& other) : OrderedMap(other) {}
  IndexedObject(IndexedObject&&) = default;
  IndexedObject& operator=(const IndexedObject&) = delete;
  IndexedObject& operator=(IndexedObject&&) = delete;
  ~IndexedObject() = default;

  // Returns the value of a key. Appends the key if it is new.
  Value& operator[](const Key& key) {
    if (this->size() < kFewKeys) return OrderedMap::operator[](key);
    if (!places_) places_ = std::make_unique<std::unordered_map<Key, std::size_t>>();
    for (std::size_t place = places_->size(); place < this->size(); ++place)
      places_->emplace(this->data()[place].first, place);
    const auto [known, is_new] = places_->try_emplace(key, this->size());
    if (is_new) OrderedMap::Container::emplace_back(key, Value{});
    return this->data()[known->second].second;
  }

 private:
  static constexpr std::size_t kFewKeys = 16;  // need no index

  std::unique_ptr<std::unordered_map<Key, std::size_t>> places_;  // of all keys; null: not needed yet
};

namespace fs = std::filesystem;
using IndexedJson = nlohmann::basic_json<IndexedObject>;  // a run may have 100,000 scopes

constexpr off_t kMaxRunFileBytes = off_t{64} << 20;

// The value of a key, or the default if it is missing or has another type.
std::string text_at(const IndexedJson& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}
std::int64_t integer_at(const IndexedJson& json, const char* key, std::int64_t otherwise) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<std::int64_t>() : otherwise;
}
bool flag_at(const IndexedJson& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_boolean() && found->get<bool>();
}
std::string dump_at(const IndexedJson& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() ? "" : found->dump(-1, ' ', false, IndexedJson::error_handler_t::replace);
}

// Calls `each` with the objects in the list at `key`.
template <class Each>
void each_object(const IndexedJson& json, const char* key, const Each& each) {
  const auto list = json.find(key);
  if (list == json.end() || !list->is_array()) return;
  for (const IndexedJson& entry : *list) {
    if (entry.is_object()) each(entry);
  }
}

RunNotes read_notes(const fs::path& file, Problems& problems) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return {};
  const auto text = read_checked_file(file, 0, [](const struct stat& status) -> std::string {
    if (!S_ISREG(status.st_mode)) return "not a regular file";
    return status.st_size > kMaxRunFileBytes ? "larger than 64 MiB" : "";
  });
  auto notes = text ? parse_run_notes(*text) : tl::unexpected(text.error());
  if (notes) return std::move(*notes);
  problems.add(file, 0, notes.error());
  return {};
}

// An output directory and its selected runs.
struct Place {
  fs::path output_dir;
  std::vector<Run> runs;
  bool read_by_runs_in = true;  // an unreadable run-{id}.json is reported already
};

// Finds the runs that places name. Reads each output directory once, even if several of its runs are named.
class RunFinder {
 public:
  explicit RunFinder(Problems& problems) : problems_(problems) {}

  tl::expected<Place, std::string> find(const fs::path& path) {
    std::error_code ignored;
    const fs::path full = fs::absolute(path, ignored).lexically_normal();
    const fs::path whole = full.has_filename() ? full : full.parent_path();
    const std::string name = whole.filename().string();
    if (fs::is_directory(whole, ignored)) {
      const auto runs = runs_of(whole);
      if (!runs) return tl::unexpected(runs.error());
      if (!(*runs)->empty()) return Place{whole, **runs};
      // find_run() recognizes a rank's directory by its CSV files; it may have only a database.
      if (const auto parsed = parse_rank_directory(name))
        return Place{whole.parent_path(), {Run{parsed->id, parsed->time, {{parsed->rank, whole}}}}, false};
    } else if (const std::string id = id_of_run_file(name);
               !id.empty() && fs::is_regular_file(whole, ignored)) {
      const auto runs = runs_of(whole.parent_path());
      if (!runs) return tl::unexpected(runs.error());
      for (const Run& run : **runs) {
        if (run.id == id) return Place{whole.parent_path(), {run}};
      }
    }
    auto one = find_run(whole, "", problems_);
    if (!one) return tl::unexpected(one.error());
    return Place{whole.parent_path(), {std::move(*one)}};
  }

 private:
  tl::expected<const std::vector<Run>*, std::string> runs_of(const fs::path& output_dir) {
    if (const auto known = runs_.find(output_dir); known != runs_.end()) return &known->second;
    auto runs = runs_in(output_dir, problems_);
    if (!runs) return tl::unexpected(runs.error());
    return &runs_.emplace(output_dir, std::move(*runs)).first->second;
  }

  Problems& problems_;
  std::map<fs::path, std::vector<Run>> runs_;  // by output directory
};

}  // namespace

tl::expected<RunNotes, std::string> parse_run_notes(const std::string& text) {
  if (is_nested_deeper(text))
    return tl::unexpected("expected brackets nested at most " + std::to_string(kMostJsonDepth) + " deep");
  const auto json = IndexedJson::parse(text, nullptr, false);
  if (!json.is_object() || integer_at(json, "format", 0) != 1)
    return tl::unexpected(std::string("expected a JSON object with \"format\": 1"));
  RunNotes notes;
  notes.world_size = integer_at(json, "world_size", -1);
  notes.revisions_left_out = integer_at(json, "revisions_left_out", 0);
  notes.scopes = dump_at(json, "scopes");
  if (const auto versions = json.find("versions"); versions != json.end() && versions->is_object()) {
    for (const auto& [name, version] : versions->items()) {
      if (version.is_string()) notes.versions.emplace_back(name, version.get<std::string>());
    }
  }
  each_object(json, "ranks", [&](const IndexedJson& rank) {
    notes.ranks.push_back({integer_at(rank, "rank", -1), text_at(rank, "host"), integer_at(rank, "pid", 0)});
  });
  each_object(json, "revisions", [&](const IndexedJson& one) {
    notes.revisions.push_back({integer_at(one, "revision", 0), integer_at(one, "effective_step", 0),
                               flag_at(one, "on"), text_at(one, "cause"), text_at(one, "by"),
                               dump_at(one, "config")});
  });
  return notes;
}

tl::expected<std::vector<JobRun>, std::string> job_runs(const std::vector<fs::path>& places,
                                                        Problems& problems) {
  std::vector<JobRun> jobs;
  RunFinder finder(problems);
  std::set<fs::path> known;  // directories of ranks
  for (const fs::path& path : places) {
    auto place = finder.find(path);
    if (!place) return tl::unexpected(place.error());
    for (Run& run : place->runs) {
      Run fresh{run.id, run.started, {}};
      for (RankDirectory& rank : run.ranks) {
        if (known.insert(rank.path.lexically_normal()).second) fresh.ranks.push_back(std::move(rank));
      }
      if (fresh.ranks.empty()) continue;
      Problems reported_already;
      RunNotes notes = read_notes(place->output_dir / ("run-" + fresh.id + ".json"),
                                  place->read_by_runs_in ? reported_already : problems);
      jobs.push_back({std::move(fresh), place->output_dir, std::move(notes)});
    }
  }
  return jobs;
}

}  // namespace gradmon
