// SPDX-License-Identifier: Apache-2.0
// An array in memory that belongs to another library (NumPy, JAX, MindSpore). A value; it owns no memory.
// Pure, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace gradmon {

enum class ElementType : std::uint8_t {
  boolean,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
  complex32,
  complex64,
  complex128,
  float8_e4m3fn,
  float8_e4m3fnuz,
  float8_e5m2,
  float8_e5m2fnuz,
};
struct ElementTypeName {
  const char* name;  // in torch, NumPy and ml_dtypes
  std::size_t bytes;
};
inline constexpr std::array<ElementTypeName, 20> kElementTypes = {{
    {"bool", 1},          {"int8", 1},
    {"int16", 2},         {"int32", 4},
    {"int64", 8},         {"uint8", 1},
    {"uint16", 2},        {"uint32", 4},
    {"uint64", 8},        {"float16", 2},
    {"bfloat16", 2},      {"float32", 4},
    {"float64", 8},       {"complex32", 4},
    {"complex64", 8},     {"complex128", 16},
    {"float8_e4m3fn", 1}, {"float8_e4m3fnuz", 1},
    {"float8_e5m2", 1},   {"float8_e5m2fnuz", 1},
}};
constexpr const char* name_of(ElementType type) { return kElementTypes[static_cast<std::size_t>(type)].name; }
constexpr std::size_t size_of(ElementType type) {
  return kElementTypes[static_cast<std::size_t>(type)].bytes;
}
std::optional<ElementType> element_type_of(std::string_view name);

struct ForeignArray {
  const void* data = nullptr;  // the element with all indices 0; may be null if there are no elements
  ElementType type = ElementType::float32;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  // in bytes, one for each of `sizes`; of any sign, or 0

  bool empty() const;
};

// Fills in the strides of a row-major array of these sizes. False: they are too large.
bool set_contiguous_strides(ForeignArray& array);

// The bytes that the elements of an array lie in.
struct MemoryRange {
  const unsigned char* begin = nullptr;
  std::size_t bytes = 0;
};

inline constexpr std::size_t kMostDimensions = 64;  // NumPy's limit

// The range of memory that reading the array touches; empty for an array without elements. Or the reason why
// the array cannot be read: a size below 0, a range that no address space has, or more than 2^28 elements
// that overlap.
tl::expected<MemoryRange, std::string> memory_of(const ForeignArray& array);

}  // namespace gradmon
