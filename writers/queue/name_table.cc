// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/name_table.h"

#include <utility>

#include "control/log.h"

namespace gradmon {

NameTable::NameTable() { intern({}); }

std::uint32_t NameTable::intern(std::string_view text, int vpp_stage) {
  const std::lock_guard lock(mutex_);
  const auto known = ids_.find({vpp_stage, text});
  return known != ids_.end() ? known->second : add(text, vpp_stage);
}

std::uint32_t NameTable::intern_shape(std::string_view shape) {
  const std::lock_guard lock(mutex_);
  if (const auto known = ids_.find({0, shape}); known != ids_.end()) return known->second;
  if (shapes_ < kMostShapes && shape.size() <= kMostShapeBytes - shape_bytes_) {
    ++shapes_;
    shape_bytes_ += shape.size();
    return add(shape, 0);
  }
  if (!std::exchange(told_of_shapes_, true))
    log_warn("more than " + std::to_string(kMostShapes) +
             " different shapes of tensors, or 64 MiB of them: rows with further ones have an empty shape");
  return 0;
}

std::uint32_t NameTable::add(std::string_view text, int vpp_stage) {
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
