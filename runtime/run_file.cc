// SPDX-License-Identifier: Apache-2.0
#include "runtime/run_file.h"

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "control/net/private_directory.h"
#include "runtime/output_document.h"

namespace gradmon {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kIdentityWithin{5};

// As "2026-11-21T12:04:37.120+01:00".
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

Json json_of(const Scope& scope) {
  switch (scope.part) {
    case Scope::Part::whole:
      return {{"scope", "whole"}};
    case Scope::Part::replica:
      return {{"scope", "replica"}};
    case Scope::Part::shard:
      return {{"scope", "shard"}, {"index", scope.index}, {"count", scope.count}};
  }
  return {};
}

Json json_of(const RunRevision& revision) {
  Json json;
  json["revision"] = revision.revision.value;
  json["effective_step"] = revision.effective.value;
  json["on"] = revision.on;
  json["cause"] = revision.cause;
  json["by"] = revision.by;
  json["config"] = Json::parse(revision.config_text, nullptr, false);
  if (json["config"].is_discarded()) json["config"] = revision.config_text;
  return json;
}

}  // namespace

std::string to_json(const RunFile& file) {
  Json json;
  json["format"] = 1;
  json["run_id"] = file.run_id;
  json["started"] = zoned_time(file.started);
  json["world_size"] = file.world_size;
  json["versions"] = file.versions;
  json["ranks"] = Json::array();
  for (const RunRank& rank : file.ranks)
    json["ranks"].push_back({{"rank", rank.rank.value}, {"host", rank.host}, {"pid", rank.pid}});
  json["revisions"] = Json::array();
  for (const RunRevision& revision : file.revisions) json["revisions"].push_back(json_of(revision));
  json["scopes"] = Json::object();
  for (const auto& [target, scope] : file.scopes) json["scopes"][target] = json_of(scope);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

tl::expected<void, std::string> write_run_file(RunDirectory& directory, RunFile file) {
  const JobIdentity job = directory.identity(kIdentityWithin);
  if (auto made = make_private_directory(directory.output_dir()); !made) return tl::unexpected(made.error());
  file.run_id = job.run_id;
  file.started = job.started;
  return write_and_rename(directory.output_dir() / ("run-" + job.run_id + ".json"), to_json(file));
}

}  // namespace gradmon
