// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/name_index.h"

namespace gradmon {

std::optional<std::uint32_t> NameIndex::id_of(std::int32_t vpp_stage, std::string_view name) {
  for (const std::uint32_t guess : {last_, last_ + 1}) {
    if (is(guess, vpp_stage, name)) return last_ = guess;
  }
  const auto known = ids_.find({vpp_stage, name});
  if (known != ids_.end()) return last_ = known->second;
  if (names_.size() >= kMaxNames || bytes_ + name.size() > kMaxBytes) return std::nullopt;
  bytes_ += name.size();
  last_ = static_cast<std::uint32_t>(names_.size());
  names_.push_back({std::string(name), vpp_stage});
  ids_.emplace(Key{vpp_stage, names_.back().text}, last_);
  return last_;
}

std::string NameIndex::label(std::uint32_t id) const {
  const Name& name = names_[id];
  return name.vpp_stage == 0 ? name.text : std::to_string(name.vpp_stage) + ':' + name.text;
}

}  // namespace gradmon
