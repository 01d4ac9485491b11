// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/stored_scopes.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "control/files/file_access.h"
#include "control/text/json_depth.h"
#include "tools/analyse/rows/row.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;  // ordered_json scans all keys to find one

constexpr off_t kMaxFileBytes = off_t{256} << 20;

// Splits "1:fc1.weight" into model chunk and name.
std::optional<std::pair<int, std::string>> target_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  const bool is_number =
      colon != std::string::npos && colon > 0 && colon < 10 && text.find_first_not_of("0123456789") == colon;
  if (!is_number) return std::nullopt;
  return std::pair(std::stoi(text.substr(0, colon)), text.substr(colon + 1));
}

// The text of a scope: its label first, as the ranks write it, then the other keys sorted.
std::string text_of(const Json& scope, const Json& label) {
  using Ordered = nlohmann::ordered_json;
  Ordered text = Ordered::object();
  auto& members = text.get_ref<Ordered::object_t&>();
  // Not operator[], which scans all members.
  members.emplace_back("scope", Ordered(label));
  for (const auto& [key, value] : scope.items()) {
    if (key != "scope") members.emplace_back(key, Ordered(value));
  }
  return text.dump(-1, ' ', false, Ordered::error_handler_t::replace);
}

tl::expected<Json, std::string> read_targets(const fs::path& file) {
  const auto text = read_checked_file(file, 0, [](const struct stat& status) -> std::string {
    if (!S_ISREG(status.st_mode)) return "not a regular file";
    return status.st_size > kMaxFileBytes ? "larger than 256 MiB" : "";
  });
  if (!text) return tl::unexpected(text.error());
  if (is_nested_deeper(*text))
    return tl::unexpected("expected brackets nested at most " + std::to_string(kMostJsonDepth) + " deep");
  Json json = Json::parse(*text, nullptr, false);
  const auto targets = json.is_object() ? json.find("targets") : json.end();
  if (targets == json.end() || !targets->is_object() || json.value("format", Json()) != 1)
    return tl::unexpected(std::string("expected a JSON object with \"format\": 1 and \"targets\""));
  return std::move(*targets);
}

}  // namespace

StoredScopes::StoredScopes(const std::vector<fs::path>& directories, Problems& problems) {
  for (const fs::path& directory : directories) {
    const fs::path file = directory / "scopes.json";
    std::error_code ignored;
    if (!fs::exists(file, ignored)) continue;
    const auto targets = read_targets(file);
    if (!targets) {
      problems.add(file, 0, targets.error() + "; target_scope lacks what it has");
      continue;
    }
    for (const auto& [name, kinds] : targets->items()) {
      const auto target = target_of(name);
      if (!target || !kinds.is_object()) continue;
      for (const auto& [kind_name, scope] : kinds.items()) {
        const auto kind = kind_named(kind_name);
        const auto label = scope.is_object() ? scope.find("scope") : scope.end();
        if (!kind || label == scope.end() || !label->is_string()) continue;
        scopes_[static_cast<std::size_t>(*kind)][*target] = text_of(scope, *label);
      }
    }
  }
}

void StoredScopes::add_to(ScopeTable& table, Kind kind, NameTable& names) const {
  for (const auto& [target, scope] : scopes_[static_cast<std::size_t>(kind)]) {
    const auto& [vpp_stage, name] = target;
    table.set(kind, names.intern(name, vpp_stage), names.intern(scope));
  }
}

}  // namespace gradmon
