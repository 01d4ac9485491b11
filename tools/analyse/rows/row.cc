// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/row.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gradmon {

Field field_named(std::string_view title) {
  for (Field field = 0; field < kFields; ++field) {
    if (title == name_of_field(field)) return field;
  }
  return kFields;
}

std::optional<Kind> kind_named(std::string_view name) {
  const auto found = std::find(kKindNames.begin(), kKindNames.end(), name);
  if (found == kKindNames.end()) return std::nullopt;
  return static_cast<Kind>(found - kKindNames.begin());
}

void Problems::add(const std::filesystem::path& file, std::uint64_t line, const std::string& text) {
  if (++count_ > kMessages) return;
  const std::string place = line == 0 ? "" : ":" + std::to_string(line);
  first_.push_back(file.string() + place + ": " + text);
}

void Problems::add(const Problems& others) {
  const std::size_t room = kMessages - first_.size();
  const auto end = others.first_.begin() + static_cast<std::ptrdiff_t>(std::min(room, others.first_.size()));
  first_.insert(first_.end(), others.first_.begin(), end);
  count_ += others.count_;
}

std::vector<std::string> Problems::messages() const {
  std::vector<std::string> messages = first_;
  if (count_ > first_.size())
    messages.push_back("and " + std::to_string(count_ - first_.size()) + " more rows or files are left out");
  return messages;
}

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
