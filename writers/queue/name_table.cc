// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/name_table.h"

#include "control/log.h"

namespace gradmon {
namespace {

std::uint64_t scope_key(Kind kind, std::uint32_t target) {
  return (static_cast<std::uint64_t>(kind) << 32U) | target;
}

}  // namespace

NameTable::NameTable(const Bound& names) : names_{names} { intern({}); }

std::uint32_t NameTable::intern(std::string_view text, int vpp_stage) {
  const std::lock_guard lock(mutex_);
  return find_or_add(text, vpp_stage, names_, "names", "are left out");
}

std::uint32_t NameTable::intern_shape(std::string_view shape) {
  const std::lock_guard lock(mutex_);
  return find_or_add(shape, 0, shapes_, "shapes of tensors", "have an empty shape");
}

std::uint32_t NameTable::find_or_add(std::string_view text, int vpp_stage, Texts& texts, const char* what,
                                     const char* then) {
  if (const auto known = ids_.find({vpp_stage, text}); known != ids_.end()) return known->second;
  if (texts.now.count == texts.most.count || text.size() > texts.most.bytes - texts.now.bytes) {
    if (!std::exchange(texts.full, true))
      log_warn("more than " + std::to_string(texts.most.count) + " different " + what + ", or " +
               std::to_string(texts.most.bytes >> 20U) + " MiB of them: rows with further ones " + then);
    return 0;
  }
  const auto id = static_cast<std::uint32_t>(entries_.size());
  const Entry& entry = entries_.emplace_back(Entry{std::string(text), vpp_stage});
  ids_.emplace(std::pair(vpp_stage, std::string_view(entry.text)), id);
  ++texts.now.count;
  texts.now.bytes += text.size();
  return id;
}

const NameTable::Entry& NameTable::entry(std::uint32_t id) const {
  const std::lock_guard lock(mutex_);
  return id < entries_.size() ? entries_[id] : entries_.front();
}

const std::string& NameTable::name(std::uint32_t id) const { return entry(id).text; }

int NameTable::vpp_stage(std::uint32_t id) const { return entry(id).vpp_stage; }

std::size_t NameTable::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

std::string with_stage(int vpp_stage, const std::string& name) {
  return vpp_stage == 0 ? name : std::to_string(vpp_stage) + ":" + name;
}

void ScopeTable::set(Kind kind, std::uint32_t target, std::uint32_t scope) {
  const std::lock_guard lock(mutex_);
  std::uint32_t& known = scopes_[scope_key(kind, target)];
  if (known == scope) return;
  known = scope;
  version_.fetch_add(1, std::memory_order_release);
}

std::uint32_t ScopeTable::of(Kind kind, std::uint32_t target) const {
  const std::lock_guard lock(mutex_);
  const auto found = scopes_.find(scope_key(kind, target));
  return found == scopes_.end() ? 0 : found->second;
}

}  // namespace gradmon
