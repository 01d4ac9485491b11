// SPDX-License-Identifier: Apache-2.0
// One row of a CSV file of gradmon or msprobe, with its numbers read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

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

}  // namespace gradmon
