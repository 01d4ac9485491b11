// SPDX-License-Identifier: Apache-2.0
#include "runtime/output/run_file.h"

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "control/files/make_directories.h"
#include "runtime/output/output_document.h"

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

}  // namespace gradmon
