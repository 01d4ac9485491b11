// SPDX-License-Identifier: Apache-2.0
#include "runtime/output/scope_notes.h"

#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/output/output_document.h"

namespace gradmon {
namespace {

using Json = nlohmann::ordered_json;

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
    known->second = scope_of(kind, parameter->second);
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

ScopeText ScopeNotes::scope_of(Kind kind, const Placed& parameter) const {
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
  std::map<std::string, std::map<Kind, const std::string*>> targets;
  for (const auto& [key, scope] : scopes_) {
    if (!scope) continue;
    const std::uint32_t target = target_in(key);
    targets[std::to_string(names_.vpp_stage(target)) + ":" + names_.name(target)].emplace(kind_in(key),
                                                                                          scope.get());
  }
  std::string text = "{\n  \"format\": 1,\n  \"targets\": {";
  const char* between = "\n";
  for (const auto& [name, kinds] : targets) {
    text += between + ("    " + quoted(name)) + ": {";
    between = ",\n";
    const char* comma = "";
    for (const auto& [kind, scope] : kinds) {
      text += comma + quoted(name_of(kind)) + ": " + *scope;
      comma = ", ";
    }
    text += "}";
  }
  return text + "\n  }\n}\n";
}

}  // namespace gradmon
