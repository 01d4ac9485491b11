// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/database/stored_scopes.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "control/files/checked_file.h"
#include "control/text/json_depth.h"
#include "control/vocabulary.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr off_t kMaxFileBytes = off_t{256} << 20;

std::optional<Kind> kind_of(const std::string& name) {
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    if (name == name_of(static_cast<Kind>(kind))) return static_cast<Kind>(kind);
  }
  return std::nullopt;
}

// "1:fc1.weight" as the id of the name in that stage.
std::optional<std::uint32_t> target_of(const std::string& text, NameTable& names) {
  const std::size_t colon = text.find(':');
  const bool is_number =
      colon != std::string::npos && colon > 0 && colon < 10 && text.find_first_not_of("0123456789") == colon;
  if (!is_number) return std::nullopt;
  return names.intern(std::string_view(text).substr(colon + 1), std::stoi(text.substr(0, colon)));
}

void add_kinds(const Json& kinds, std::uint32_t target, NameTable& names, ScopeTable& scopes) {
  if (!kinds.is_object()) return;
  for (const auto& [name, scope] : kinds.items()) {
    const auto kind = kind_of(name);
    const auto label = scope.is_object() ? scope.find("scope") : scope.end();
    if (!kind || label == scope.end() || !label->is_string()) continue;
    scopes.set(*kind, target, names.intern(scope.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
}

tl::expected<void, std::string> add_file(const fs::path& file, NameTable& names, ScopeTable& scopes) {
  const auto text = read_checked_file(file, 0, [](const struct stat& status) -> std::string {
    if (!S_ISREG(status.st_mode)) return "not a regular file";
    return status.st_size > kMaxFileBytes ? "larger than 256 MiB" : "";
  });
  if (!text) return tl::unexpected(text.error());
  if (is_nested_deeper(*text))
    return tl::unexpected("expected brackets nested at most " + std::to_string(kMostJsonDepth) + " deep");
  const auto json = Json::parse(*text, nullptr, false);
  const auto targets = json.is_object() ? json.find("targets") : json.end();
  if (targets == json.end() || !targets->is_object() || json.value("format", Json()) != 1)
    return tl::unexpected(std::string("expected a JSON object with \"format\": 1 and \"targets\""));
  for (const auto& [name, kinds] : targets->items()) {
    if (const auto target = target_of(name, names)) add_kinds(kinds, *target, names, scopes);
  }
  return {};
}

}  // namespace

std::shared_ptr<const ScopeTable> stored_scopes(const std::vector<fs::path>& directories, NameTable& names,
                                                Problems& problems) {
  auto scopes = std::make_shared<ScopeTable>();
  for (const fs::path& directory : directories) {
    const fs::path file = directory / "scopes.json";
    std::error_code ignored;
    if (!fs::exists(file, ignored)) continue;
    if (const auto added = add_file(file, names, *scopes); !added)
      problems.add(file, 0, added.error() + "; target_scope lacks what it has");
  }
  return scopes;
}

}  // namespace gradmon
