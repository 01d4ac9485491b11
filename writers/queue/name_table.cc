// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/name_table.h"

namespace gradmon {

NameTable::NameTable() { intern({}); }

std::uint32_t NameTable::intern(std::string_view text, int vpp_stage) {
  const std::lock_guard lock(mutex_);
  if (const auto known = ids_.find({vpp_stage, text}); known != ids_.end()) return known->second;
  const auto id = static_cast<std::uint32_t>(entries_.size());
  const Entry& entry = entries_.emplace_back(Entry{std::string(text), vpp_stage});
  ids_.emplace(std::pair(vpp_stage, std::string_view(entry.text)), id);
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

}  // namespace gradmon
