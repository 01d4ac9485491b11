// SPDX-License-Identifier: Apache-2.0
// One row of a CSV file of gradmon or msprobe, with its numbers read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "control/vocabulary.h"

namespace gradmon {

// A numeric column of the CSV files: index into Row::values. The statistics of a tensor come first, in the
// order of Op.
inline constexpr std::array<const char*, 8> kFeatureNames = {
    "entropy", "softmax_max", "sr", "kernel_norm", "cosine", "mg_direction", "value", "samples"};
inline constexpr std::size_t kFields = kOps + kFeatureNames.size();

using Field = std::uint8_t;
constexpr Field field_of(Op op) { return static_cast<Field>(op); }
constexpr Field kKernelNormField = kOps + 3;
constexpr Field kMgDirectionField = kOps + 5;
constexpr Field kValueField = kOps + 6;
constexpr Field kSamplesField = kOps + 7;
constexpr const char* name_of_field(Field field) {
  return field < kOps ? kStatistics[field].name : kFeatureNames[field - kOps];
}
// Returns kFields for a title that is not a numeric column.
Field field_named(std::string_view title);

// Returns the kind with this name in files, or nullopt.
std::optional<Kind> kind_named(std::string_view name);

struct Row {
  std::int64_t step = 0;
  std::int32_t micro_step = -1;  // -1: the file has no such column
  std::int32_t vpp_stage = 0;
  std::string_view name;  // these three are valid until the next row of the file
  std::string_view shape;
  std::string_view dtype;
  std::array<double, kFields> values{};  // by Field; valid only where `mask` has the bit
  std::uint32_t mask = 0;
  std::uint64_t line = 0;   // in the file, from 1
  std::uint64_t place = 0;  // among the rows of its step in the file, from 0

  bool has(Field field) const { return (mask >> field & 1U) != 0; }
};

// The errors in skipped input: the first messages, and the number of all. One thread.
class Problems {
 public:
  static constexpr std::size_t kMessages = 10;

  // `line`: 0 for the whole file. `text`: the found and the expected value.
  void add(const std::filesystem::path& file, std::uint64_t line, const std::string& text);

  // Adds the problems of another part of the input, which follow.
  void add(const Problems& others);

  std::uint64_t count() const { return count_; }
  // "FILE:LINE: TEXT" of the first problems; a last line counts the others. Not made printable.
  std::vector<std::string> messages() const;

 private:
  std::vector<std::string> first_;
  std::uint64_t count_ = 0;
};

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
