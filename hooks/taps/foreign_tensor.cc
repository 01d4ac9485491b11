// SPDX-License-Identifier: Apache-2.0
#include "hooks/taps/foreign_tensor.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/version.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

namespace gradmon {
namespace {

std::optional<at::ScalarType> scalar_type_of(ElementType type) {
  switch (type) {
    case ElementType::boolean:
      return at::kBool;
    case ElementType::int8:
      return at::kChar;
    case ElementType::int16:
      return at::kShort;
    case ElementType::int32:
      return at::kInt;
    case ElementType::int64:
      return at::kLong;
    case ElementType::uint8:
      return at::kByte;
    case ElementType::float16:
      return at::kHalf;
    case ElementType::bfloat16:
      return at::kBFloat16;
    case ElementType::float32:
      return at::kFloat;
    case ElementType::float64:
      return at::kDouble;
    case ElementType::complex32:
      return at::kComplexHalf;
    case ElementType::complex64:
      return at::kComplexFloat;
    case ElementType::complex128:
      return at::kComplexDouble;
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
    case ElementType::uint16:
      return at::ScalarType::UInt16;
    case ElementType::uint32:
      return at::ScalarType::UInt32;
    case ElementType::uint64:
      return at::ScalarType::UInt64;
    case ElementType::float8_e4m3fn:
      return at::ScalarType::Float8_e4m3fn;
    case ElementType::float8_e4m3fnuz:
      return at::ScalarType::Float8_e4m3fnuz;
    case ElementType::float8_e5m2:
      return at::ScalarType::Float8_e5m2;
    case ElementType::float8_e5m2fnuz:
      return at::ScalarType::Float8_e5m2fnuz;
#endif
    default:
      return std::nullopt;
  }
}

// The array with every stride positive or 0, from its lowest element on.
struct Upward {
  const unsigned char* lowest = nullptr;
  std::vector<std::int64_t> strides;  // in bytes
};

Upward upward(const ForeignArray& array) {
  Upward found{static_cast<const unsigned char*>(array.data), array.strides};
  for (std::size_t i = 0; i < array.sizes.size(); ++i) {
    if (found.strides[i] >= 0) continue;
    found.lowest += (array.sizes[i] - 1) * found.strides[i];
    found.strides[i] = -found.strides[i];
  }
  return found;
}

// The strides in elements; empty if the strides or the address are not multiples of the element's size.
std::optional<std::vector<std::int64_t>> element_strides(const Upward& array, std::size_t item) {
  if (reinterpret_cast<std::uintptr_t>(array.lowest) % item != 0) return std::nullopt;
  std::vector<std::int64_t> strides;
  for (const std::int64_t stride : array.strides) {
    if (stride % static_cast<std::int64_t>(item) != 0) return std::nullopt;
    strides.push_back(stride / static_cast<std::int64_t>(item));
  }
  return strides;
}

// Copies the elements one by one into a contiguous tensor; elements that a stride of 0 repeats only once.
at::Tensor gathered(const Upward& array, const std::vector<std::int64_t>& sizes, at::ScalarType type,
                    std::size_t item) {
  std::vector<std::int64_t> once = sizes;
  for (std::size_t i = 0; i < once.size(); ++i) {
    if (array.strides[i] == 0) once[i] = 1;
  }
  at::Tensor copy = at::empty(once, type);
  auto* to = static_cast<unsigned char*>(copy.data_ptr());
  std::vector<std::int64_t> index(once.size(), 0);
  for (std::int64_t left = copy.numel(); left > 0; --left) {
    const unsigned char* from = array.lowest;
    for (std::size_t i = 0; i < index.size(); ++i) from += index[i] * array.strides[i];
    std::memcpy(to, from, item);
    to += item;
    for (std::size_t i = index.size(); i-- > 0;) {
      if (++index[i] < once[i]) break;
      index[i] = 0;
    }
  }
  return copy.expand(sizes);
}

}  // namespace

tl::expected<at::Tensor, std::string> tensor_of(const ForeignArray& array) {
  const auto type = scalar_type_of(array.type);
  if (!type) return tl::unexpected(std::string("torch " TORCH_VERSION " has no type ") + name_of(array.type));
  if (array.empty()) return at::empty(array.sizes, *type);
  const std::size_t item = size_of(array.type);
  const Upward from = upward(array);
  const auto strides = element_strides(from, item);
  if (!strides) return gathered(from, array.sizes, *type, item);
  // The statistics only read it.
  return at::from_blob(const_cast<unsigned char*>(from.lowest), array.sizes, *strides,
                       at::TensorOptions().dtype(*type));
}

}  // namespace gradmon
