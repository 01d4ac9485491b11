// SPDX-License-Identifier: Apache-2.0
// The vocabulary of measurement: kind, op, data type, record. Standard library
// only; every folder may include it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gradmon {

// What was measured; the enumerator is the prefix of the output file. In the
// order in which a step's files and tables are written.
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
};
inline constexpr std::size_t kKinds = 14;
inline constexpr std::array<const char*, kKinds> kKindNames = {
    "actv",           "actv_grad",   "grad_unreduced", "grad_reduced",
    "exp_avg",        "exp_avg_sq",  "param_origin",   "param_updated",
    "attention_hook", "linear_hook", "other",          "moe_router_weight_hook",
    "moe_router_logit_hook", "scalar"};
constexpr const char* name_of(Kind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

// A number taken of a tensor; index into Record::values and bit of its mask.
enum class Op : std::uint8_t { min, max, mean, norm, nans, zeros };
inline constexpr std::size_t kOps = 6;
inline constexpr std::array<const char*, kOps> kOpNames = {"min", "max", "mean", "norm", "nans", "zeros"};
constexpr const char* name_of(Op op) { return kOpNames[static_cast<std::size_t>(op)]; }
constexpr std::uint8_t bit_of(Op op) { return static_cast<std::uint8_t>(1U << static_cast<unsigned>(op)); }

// A number of another sort: index into Record::values, of the kinds named. `other`
// has mg_direction beside all ops.
enum class Column : std::uint8_t {
  entropy = 0,       // attention_hook, moe_router_logit_hook
  softmax_max = 1,   // attention_hook
  sr = 0,            // linear_hook
  kernel_norm = 1,   // linear_hook
  cosine = 0,        // moe_router_weight_hook
  samples = 0,       // scalar: seen by all ranks so far
  value = 1,         // scalar
  mg_direction = kOps,  // other
};
inline constexpr std::size_t kValues = kOps + 1;
constexpr std::uint8_t bit_of(Column column) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(column));
}

// The element type of the tensor measured; printed as torch prints it.
enum class DType : std::uint8_t {
  float32, float64, float16, bfloat16, int8, uint8, int16, int32, int64, boolean, complex64, complex128, unknown
};
inline constexpr std::array<const char*, 13> kDTypeNames = {
    "torch.float32", "torch.float64", "torch.float16", "torch.bfloat16", "torch.int8",
    "torch.uint8",   "torch.int16",   "torch.int32",   "torch.int64",    "torch.bool",
    "torch.complex64", "torch.complex128", ""};
constexpr const char* name_of(DType dtype) { return kDTypeNames[static_cast<std::size_t>(dtype)]; }

// One row of measurement: what a hook makes and the writer thread writes.
struct Record {
  std::int64_t step = 0;
  std::uint64_t revision = 0;
  std::uint64_t sequence = 0;   // place within the step: the order of the rows of one kind
  std::array<double, kValues> values{};  // by Op or Column; only those of `mask` hold
  std::uint32_t target = 0;     // NameTable id of the parameter or module
  std::uint32_t shape = 0;      // NameTable id of the shape text, as "[16, 8]"
  std::int32_t micro_step = 0;
  Kind kind = Kind::other;
  DType dtype = DType::unknown;
  std::uint8_t mask = 0;        // bit_of every valid value
};
static_assert(std::is_trivially_copyable_v<Record>);

}  // namespace gradmon
