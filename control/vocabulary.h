// SPDX-License-Identifier: Apache-2.0
// Kinds of records, statistics and data types, shared by the config file, the hooks and the writers.
// Standard library only; every folder may include it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gradmon/types.h"  // IWYU pragma: export

namespace gradmon {

// The quantity measured. The enumerator's name is the prefix of the output file. A step's files and tables
// are written in this order.
enum class Kind : std::uint8_t {
  actv,
  actv_grad,
  grad_unreduced,
  grad_reduced,
  exp_avg,
  exp_avg_sq,
  param_origin,
  param_updated,
  attention_hook,
  linear_hook,
  other,
  moe_router_weight_hook,
  moe_router_logit_hook,
  scalar,
  // Histograms, which are no records: writers/queue/record.h.
  update,
  ratio,
};
inline constexpr std::size_t kKinds = 16;
inline constexpr std::size_t kRecordKinds = 14;  // the first ones
constexpr bool is_histogram(Kind kind) { return static_cast<std::size_t>(kind) >= kRecordKinds; }
inline constexpr std::array<const char*, kKinds> kKindNames = {
    {"actv", "actv_grad", "grad_unreduced", "grad_reduced", "exp_avg", "exp_avg_sq", "param_origin",
     "param_updated", "attention_hook", "linear_hook", "other", "moe_router_weight_hook",
     "moe_router_logit_hook", "scalar", "update", "ratio"}};
constexpr const char* name_of(Kind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }
using KindSet = std::uint32_t;
constexpr KindSet bit_of(Kind kind) { return KindSet{1} << static_cast<unsigned>(kind); }

// A statistic of a tensor: index into Record::values and bit of its mask. msprobe's six
// come first. hooks/METRICS.md has the formulas; CONTRIBUTING.md says how to add one.
enum class Op : std::uint8_t { min, max, mean, norm, nans, zeros, absmax };
inline constexpr std::size_t kOps = 7;

// Computes the statistic of several tensors from the statistic of each tensor.
enum class Fold : std::uint8_t { least, greatest, sum, mean_by_elements, root_of_squares };

struct Statistic {
  const char* name;  // in the config, in files and messages
  bool scales;       // grows with the tensor's values, so a loss scale is divided out
  Fold fold;
  bool is_count;  // printed as an integer
};

// Indexed by Op.
inline constexpr std::array<Statistic, kOps> kStatistics = {{
    {"min", true, Fold::least, false},
    {"max", true, Fold::greatest, false},
    {"mean", true, Fold::mean_by_elements, false},
    {"norm", true, Fold::root_of_squares, false},
    {"nans", false, Fold::sum, true},
    {"zeros", false, Fold::mean_by_elements, false},
    {"absmax", true, Fold::greatest, false},
}};
constexpr const Statistic& statistic_of(Op op) { return kStatistics[static_cast<std::size_t>(op)]; }
constexpr const char* name_of(Op op) { return statistic_of(op).name; }

// The valid values of a Record: one bit per value.
using ValueMask = std::uint16_t;
constexpr ValueMask bit_of(Op op) { return static_cast<ValueMask>(1U << static_cast<unsigned>(op)); }

// A value that is not a statistic: index into Record::values. The comments name the kinds that have it.
// `other` has mg_direction and all statistics.
enum class Column : std::uint8_t {
  entropy = 0,          // attention_hook, moe_router_logit_hook
  softmax_max = 1,      // attention_hook
  sr = 0,               // linear_hook
  kernel_norm = 1,      // linear_hook
  cosine = 0,           // moe_router_weight_hook
  samples = 0,          // scalar: samples that all ranks have processed so far
  value = 1,            // scalar
  mg_direction = kOps,  // other
  // All kinds of statistics except `other`, of tensors that were read in part: hooks/METRICS.md, "Samples".
  sampled = kOps,  // share of the elements that were read
  mean_se = kOps + 1,
  norm_se = kOps + 2,
};
inline constexpr std::size_t kValues = kOps + 3;
static_assert(kValues <= 8 * sizeof(ValueMask));
constexpr ValueMask bit_of(Column column) {
  return static_cast<ValueMask>(1U << static_cast<unsigned>(column));
}
inline constexpr ValueMask kSampleMarks =
    bit_of(Column::sampled) | bit_of(Column::mean_se) | bit_of(Column::norm_se);

// The element type of the measured tensor: index into kDTypeNames. dtype_named() finds the types without an
// enumerator.
enum class DType : std::uint8_t {
  float32,
  float64,
  float16,
  bfloat16,
  int8,
  uint8,
  int16,
  int32,
  int64,
  boolean,
  complex64,
  complex128,
  unknown = 47
};
inline constexpr std::size_t kDTypes = static_cast<std::size_t>(DType::unknown) + 1;
inline constexpr std::array<const char*, kDTypes> kDTypeNames = {
    // As torch prints them.
    "torch.float32", "torch.float64", "torch.float16", "torch.bfloat16", "torch.int8", "torch.uint8",
    "torch.int16", "torch.int32", "torch.int64", "torch.bool", "torch.complex64", "torch.complex128",
    "torch.float8_e4m3fn", "torch.float8_e4m3fnuz", "torch.float8_e5m2", "torch.float8_e5m2fnuz",
    "torch.float8_e8m0fnu", "torch.uint16", "torch.uint32", "torch.uint64", "torch.complex32", "torch.qint8",
    "torch.quint8", "torch.qint32", "torch.quint4x2", "torch.quint2x4",
    // Numbers with scales: the type of the stored number, then the values that share a scale
    // (writers/FORMAT.md).
    "float8_e4m3fn/tensor", "float8_e4m3fn/axis", "float8_e4m3fn/block", "float8_e4m3fnuz/tensor",
    "float8_e4m3fnuz/axis", "float8_e4m3fnuz/block", "float8_e5m2/tensor", "float8_e5m2/axis",
    "float8_e5m2/block", "float8_e5m2fnuz/tensor", "float8_e5m2fnuz/axis", "float8_e5m2fnuz/block",
    "mxfp8_e4m3/32", "mxfp8_e5m2/32", "mxfp6_e2m3/32", "mxfp6_e3m2/32", "mxfp4_e2m1/32", "nvfp4_e2m1/16",
    "int8/axis", "int8/dynamic", "int4/dynamic", ""};
static_assert(*kDTypeNames[kDTypes - 1] == '\0');
constexpr const char* name_of(DType dtype) { return kDTypeNames[static_cast<std::size_t>(dtype)]; }
// Returns DType::unknown for another name.
constexpr DType dtype_named(std::string_view name) {
  for (std::size_t i = 0; i < kDTypes; ++i) {
    if (name == kDTypeNames[i]) return static_cast<DType>(i);
  }
  return DType::unknown;
}

// The config's `sample`: at most so many blocks of a group, of which one is read.
inline constexpr std::uint32_t kMostSample = 64;

// The order of the axes of an attention's Q and K: s sequence, b batch, h head, d head size.
enum class AxisOrder : std::uint8_t { sbhd, bshd };

// The config file's choice of `Causal`. automatic: taken from the attention's call, yes if unknown.
enum class CausalMask : std::uint8_t { automatic, yes, no };

}  // namespace gradmon
