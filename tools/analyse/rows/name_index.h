// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace gradmon {

// Small numbers for the names of parameters and modules: 0, 1, 2 … in the order of first sight. Fast if names
// repeat in the same order. Bounded. One thread.
class NameIndex {
 public:
  static constexpr std::size_t kMaxNames = 1'000'000;
  static constexpr std::size_t kMaxBytes = std::size_t{128} << 20;

  // Returns nullopt if the name is new and the index is full.
  std::optional<std::uint32_t> id_of(std::int32_t vpp_stage, std::string_view name);

  std::size_t size() const { return names_.size(); }
  const std::string& name(std::uint32_t id) const { return names_[id].text; }
  std::int32_t vpp_stage(std::uint32_t id) const { return names_[id].vpp_stage; }
  // "1:fc1.weight"; for stage 0 the name alone.
  std::string label(std::uint32_t id) const;

 private:
  struct Name {
    std::string text;
    std::int32_t vpp_stage;
  };
  using Key = std::pair<std::int32_t, std::string_view>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return std::hash<std::string_view>()(key.second) ^
             static_cast<std::size_t>(key.first) * 0x9E3779B97F4A7C15U;
    }
  };
  bool is(std::uint32_t id, std::int32_t vpp_stage, std::string_view name) const {
    return id < names_.size() && names_[id].vpp_stage == vpp_stage && names_[id].text == name;
  }

  std::deque<Name> names_;  // by id; entries never move
  std::unordered_map<Key, std::uint32_t, KeyHash> ids_;
  std::uint32_t last_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace gradmon
