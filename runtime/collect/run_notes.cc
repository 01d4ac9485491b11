// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/run_notes.h"

#include <torch/version.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "control/agree/plan.h"
#include "control/files/file_access.h"
#include "control/log.h"

namespace gradmon {
namespace {

using Json = nlohmann::ordered_json;

// "2026-11-21T12:04:37.120+01:00"
std::string zoned_time(WallTime time) {
  const std::time_t seconds = time / 1000;
  std::tm local{};
  localtime_r(&seconds, &local);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &local);
  const long minutes = (local.tm_gmtoff < 0 ? -local.tm_gmtoff : local.tm_gmtoff) / 60;
  char rest[32];
  std::snprintf(rest, sizeof rest, ".%03d%c%02ld:%02ld", static_cast<int>(time % 1000),
                local.tm_gmtoff < 0 ? '-' : '+', minutes / 60, minutes % 60);
  return std::string(date) + rest;
}

constexpr std::size_t kMostRevisions = 1000;
constexpr std::size_t kMostConfigBytes = std::size_t{16} << 20;

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json json_of(const ParameterPlacement& scope) {
  switch (scope.part) {
    case ParameterPlacement::Part::whole:
      return {{"scope", "whole"}};
    case ParameterPlacement::Part::replica:
      return {{"scope", "replica"}};
    case ParameterPlacement::Part::shard:
      return {{"scope", "shard"}, {"index", scope.index}, {"count", scope.count}};
  }
  return {};
}

std::string text_of(const RunRank& rank) {
  return text_of({{"rank", rank.rank.value}, {"host", rank.host}, {"pid", rank.pid}});
}

// Inserts the config text unchanged: it is long, and usually JSON already. Other text becomes a string.
std::string text_of(const std::shared_ptr<const RunRevision>& revision) {
  Json json;
  json["revision"] = revision->revision.value;
  json["effective_step"] = revision->effective.value;
  json["on"] = revision->on;
  json["cause"] = revision->cause;
  json["by"] = revision->by;
  std::string text = text_of(json);
  text.pop_back();
  const bool valid = Json::accept(revision->config_text);
  return text + ",\"config\":" + (valid ? revision->config_text : text_of(Json(revision->config_text))) + "}";
}

std::string text_of(const std::pair<const std::string, ParameterPlacement>& scope) {
  return text_of(Json(scope.first)) + ": " + text_of(json_of(scope.second));
}

template <typename List>
std::string lines_of(const List& list) {
  std::string text;
  for (const auto& entry : list) text += (text.empty() ? "\n    " : ",\n    ") + text_of(entry);
  return text.empty() ? text : text + "\n  ";
}

std::uint64_t key_of(Kind kind, std::uint32_t target) {
  return (static_cast<std::uint64_t>(kind) << 32U) | target;
}

Kind kind_in(std::uint64_t key) { return static_cast<Kind>(key >> 32U); }
std::uint32_t target_in(std::uint64_t key) { return static_cast<std::uint32_t>(key); }

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

const ScopeText& whole() {
  static const ScopeText text = make_scope(R"({"scope": "whole"})");
  return text;
}

const ScopeText& replica() {
  static const ScopeText text = make_scope(R"({"scope": "replica"})");
  return text;
}

}  // namespace

void add_revision(RunFile& file, RunRevision revision) {
  auto& all = file.revisions;
  all.push_back(std::make_shared<const RunRevision>(std::move(revision)));
  std::size_t bytes = 0;
  for (const auto& one : all) bytes += one->config_text.size();
  while (all.size() > 2 && (all.size() > kMostRevisions || bytes > kMostConfigBytes)) {
    bytes -= all[1]->config_text.size();
    all.erase(all.begin() + 1);
    ++file.revisions_left_out;
  }
}

std::string to_json(const RunFile& file) {
  std::string text = "{\n  \"format\": 1";
  const auto add = [&](const char* key, const std::string& value) {
    text += std::string(",\n  \"") + key + "\": " + value;
  };
  add("run_id", text_of(Json(file.run_id)));
  add("started", text_of(Json(zoned_time(file.started))));
  add("world_size", std::to_string(file.world_size));
  add("versions", text_of(Json(file.versions)));
  add("ranks", "[" + lines_of(file.ranks) + "]");
  add("revisions", "[" + lines_of(file.revisions) + "]");
  if (file.revisions_left_out > 0) add("revisions_left_out", std::to_string(file.revisions_left_out));
  add("scopes", "{" + lines_of(file.scopes ? *file.scopes : RunFile::Scopes()) + "}");
  return text + "\n}\n";
}

tl::expected<void, std::string> write_run_file(RunDirectory& directory, RunFile file) {
  const JobIdentity job = directory.identity();
  if (auto made = make_directories(directory.output_dir()); !made) return tl::unexpected(made.error());
  file.run_id = job.run_id;
  file.started = job.started;
  return write_and_rename(directory.output_dir() / ("run-" + job.run_id + ".json"), to_json(file));
}

struct RunNotes::Draft {
  std::mutex mutex;
  // Guarded by mutex.
  RunFile file;
  std::weak_ptr<const void> queued;  // held by a queued write that has not started

  // Returns the object that the caller's write must hold; null: a write is already queued. After a write
  // that the writer thread has refused, the next one is queued.
  std::shared_ptr<const void> put(const RunFile& changed) {
    const std::lock_guard lock(mutex);
    file = changed;
    if (!queued.expired()) return nullptr;
    const std::shared_ptr<const void> held = std::make_shared<char>();
    queued = held;
    return held;
  }
  RunFile take() {
    const std::lock_guard lock(mutex);
    queued.reset();
    return file;
  }
};

RunNotes::RunNotes(std::shared_ptr<RunDirectory> directory, int world_size,
                   std::function<std::vector<RankStatus>()> ranks, WriterThread& writer)
    : directory_(std::move(directory)),
      ranks_(std::move(ranks)),
      writer_(writer),
      draft_(std::make_shared<Draft>()) {
  file_.world_size = world_size;
  file_.versions = {{"gradmon", GRADMON_VERSION}, {"torch", TORCH_VERSION}};
}

void RunNotes::add_model(const WatchedModel& chunk) {
  auto scopes = file_.scopes ? *file_.scopes : RunFile::Scopes();
  for (const WatchedParameter& parameter : chunk.parameters)
    scopes[std::to_string(parameter.vpp_stage) + ":" + parameter.name] = parameter.placement;
  file_.scopes = std::make_shared<const RunFile::Scopes>(std::move(scopes));
  renew();
}

void RunNotes::note(const Commitment& commitment) {
  const Plan& plan = *commitment.plan;
  add_revision(file_, {commitment.revision, commitment.effective, plan.on, name_of(plan.cause), plan.by,
                       plan.config_text});
  renew();
}

void RunNotes::renew() noexcept {
  if (file_.revisions.empty()) return;
  try {
    file_.ranks.clear();
    for (const RankStatus& rank : ranks_()) {
      if (!rank.host.empty()) file_.ranks.push_back({rank.rank, rank.host, rank.pid});
    }
    const auto held = draft_->put(file_);
    if (!held) return;
    writer_.write_file(
        [directory = directory_, draft = draft_, held] { return write_run_file(*directory, draft->take()); });
  } catch (const std::exception& error) {
    log_warn(std::string("the file of this run is not written: ") + error.what());
  }
}

void ScopeNotes::expect(std::uint32_t target, const WatchedParameter& parameter) {
  // Does not keep the sharding itself, because the sharding keeps the model.
  const ParameterSharding* sharding = parameter.sharding.get();
  parameters_[target] = {parameter.placement, parameter.replicated,
                         sharding != nullptr ? sharding->unreduced_scope : nullptr,
                         sharding != nullptr ? sharding->scope : nullptr};
}

void ScopeNotes::note(Kind kind, std::uint32_t target, const ScopeText& scope) noexcept {
  try {
    ScopeText& known = scopes_[key_of(kind, target)];
    if (known == scope || (known && scope && *known == *scope)) return;
    known = scope;
    publish(kind, target, scope);
  } catch (const std::exception&) {  // Out of memory: the row has no scope.
  }
}

void ScopeNotes::count_row(Kind kind, std::uint32_t target) noexcept {
  static_assert(kKinds <= 16);
  const auto bit = static_cast<std::uint16_t>(1U << static_cast<unsigned>(kind));
  if (target < counted_.size() && (counted_[target] & bit) != 0) return;
  try {
    if (target >= counted_.size()) counted_.resize(target + std::size_t{1});
    add(kind, target);
    counted_[target] = static_cast<std::uint16_t>(counted_[target] | bit);
  } catch (const std::exception&) {  // Out of memory: the row is not counted.
  }
}

void ScopeNotes::add(Kind kind, std::uint32_t target) {
  const auto [known, fresh] = scopes_.try_emplace(key_of(kind, target));
  if (!fresh) return;
  const auto parameter = parameters_.find(target);
  if (parameter != parameters_.end()) {
    known->second = find_scope(kind, parameter->second);
  } else if (kind == Kind::actv || kind == Kind::actv_grad) {
    known->second = whole();
  }
  publish(kind, target, known->second);
}

void ScopeNotes::publish(Kind kind, std::uint32_t target, const ScopeText& scope) {
  if (!scope) return;
  changed_ = true;
  table_->set(kind, target, names_.intern(*scope));
}

ScopeText ScopeNotes::find_scope(Kind kind, const Placed& parameter) const {
  const ScopeText& own = kind == Kind::grad_unreduced ? parameter.unreduced_scope : parameter.scope;
  if (own) return own;
  const ParameterPlacement& placement = parameter.placement;
  if (placement.part == ParameterPlacement::Part::shard) {
    return make_scope(R"({"scope": "shard", "index": )" + std::to_string(placement.index) + R"(, "count": )" +
                      std::to_string(placement.count) + "}");
  }
  if (kind == Kind::grad_unreduced) return whole();
  const bool same = placement.part == ParameterPlacement::Part::replica || replicas_ > 1;
  return same && parameter.replicated ? replica() : whole();
}

void ScopeNotes::write(std::shared_ptr<RunDirectory> directory, WriterThread& writer) {
  if (auto text = take_changed()) not_queued_ = std::make_shared<const std::string>(std::move(*text));
  if (!not_queued_) return;
  const bool queued = writer.write_file(writes_.next(
      [directory = std::move(directory), text = not_queued_]() -> tl::expected<void, std::string> {
        const auto path = directory->path();
        if (path.empty()) return {};
        return write_and_rename(path / "scopes.json", *text);
      }));
  if (queued) not_queued_.reset();
}

std::optional<std::string> ScopeNotes::take_changed() {
  if (!changed_) return std::nullopt;
  changed_ = false;
  struct Entry {
    std::string stage;  // short: in place
    const std::string* name;
    Kind kind;
    const std::string* scope;
  };
  std::vector<Entry> entries;
  std::size_t size = 64;
  for (const auto& [key, scope] : scopes_) {
    if (!scope) continue;
    const std::uint32_t target = target_in(key);
    entries.push_back(
        {std::to_string(names_.vpp_stage(target)), &names_.name(target), kind_in(key), scope.get()});
    size += entries.back().name->size() + scope->size() + 40;
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& one, const Entry& other) {
    return std::tie(one.stage, *one.name, one.kind) < std::tie(other.stage, *other.name, other.kind);
  });
  std::string text = "{\n  \"format\": 1,\n  \"targets\": {";
  text.reserve(size);
  const Entry* last = nullptr;
  for (const Entry& entry : entries) {
    if (last != nullptr && std::tie(last->stage, *last->name) == std::tie(entry.stage, *entry.name)) {
      text += ", ";
    } else {
      text += last == nullptr ? "\n" : "},\n";
      text += "    " + quoted(entry.stage + ":" + *entry.name) + ": {";
    }
    text += quoted(name_of(entry.kind)) + ": " + *entry.scope;
    last = &entry;
  }
  return text + (last == nullptr ? "\n  }\n}\n" : "}\n  }\n}\n");
}

}  // namespace gradmon
