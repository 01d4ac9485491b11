// SPDX-License-Identifier: Apache-2.0
#include "hooks/arrays/dl_array.h"

#include <cstring>
#include <limits>
#include <optional>

#include "hooks/arrays/readable_memory.h"

namespace gradmon {
namespace {

// DLDataTypeCode and bits, from DLPack 1.1.
struct Known {
  unsigned code;
  unsigned bits;
  ElementType type;
};
constexpr Known kKnown[] = {
    {0, 8, ElementType::int8},           {0, 16, ElementType::int16},
    {0, 32, ElementType::int32},         {0, 64, ElementType::int64},
    {1, 8, ElementType::uint8},          {1, 16, ElementType::uint16},
    {1, 32, ElementType::uint32},        {1, 64, ElementType::uint64},
    {2, 16, ElementType::float16},       {2, 32, ElementType::float32},
    {2, 64, ElementType::float64},       {4, 16, ElementType::bfloat16},
    {5, 32, ElementType::complex32},     {5, 64, ElementType::complex64},
    {5, 128, ElementType::complex128},   {6, 8, ElementType::boolean},
    {10, 8, ElementType::float8_e4m3fn}, {11, 8, ElementType::float8_e4m3fnuz},
    {12, 8, ElementType::float8_e5m2},   {13, 8, ElementType::float8_e5m2fnuz},
};

std::optional<ElementType> type_of(const DlDataType& dtype) {
  if (dtype.lanes != 1) return std::nullopt;
  for (const Known& known : kKnown) {
    if (known.code == dtype.code && known.bits == dtype.bits) return known.type;
  }
  return std::nullopt;
}

bool has_readable_dimensions(const DlTensor& tensor) {
  if (tensor.ndim <= 0) return true;
  const std::size_t bytes = static_cast<std::size_t>(tensor.ndim) * sizeof(std::int64_t);
  return is_readable({reinterpret_cast<const unsigned char*>(tensor.shape), bytes}) &&
         (tensor.strides == nullptr ||
          is_readable({reinterpret_cast<const unsigned char*>(tensor.strides), bytes}));
}

// Copies a structure from an address in another library. nullopt: the address cannot be read.
template <typename Structure>
std::optional<Structure> copy_of(const void* address) {
  if (!is_readable({static_cast<const unsigned char*>(address), sizeof(Structure)})) return std::nullopt;
  Structure copy;
  std::memcpy(&copy, address, sizeof copy);
  return copy;
}

bool set_strides(const DlTensor& tensor, ForeignArray& array) {
  if (tensor.strides == nullptr) return set_contiguous_strides(array);
  const auto bytes = static_cast<std::int64_t>(size_of(array.type));
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / bytes;
  for (std::size_t i = 0; i < array.sizes.size(); ++i) {
    std::int64_t stride = 0;
    std::memcpy(&stride, tensor.strides + i, sizeof stride);
    if (array.sizes[i] < 2) stride = 0;  // Not used: NumPy and others leave any number here.
    if (stride > most || stride < -most) return false;
    array.strides.push_back(stride * bytes);
  }
  return true;
}

}  // namespace

tl::expected<ForeignArray, std::string> array_of(const DlTensor& tensor) {
  if (!is_host_memory(tensor.device.type))
    return tl::unexpected("its memory is on a device of DLPack's type " + std::to_string(tensor.device.type));
  const auto type = type_of(tensor.dtype);
  if (!type)
    return tl::unexpected("elements of DLPack's type " + std::to_string(tensor.dtype.code) + ", " +
                          std::to_string(tensor.dtype.bits) + " bits, " + std::to_string(tensor.dtype.lanes) +
                          " lanes");
  if (tensor.ndim < 0 || static_cast<std::size_t>(tensor.ndim) > kMostDimensions)
    return tl::unexpected(std::to_string(tensor.ndim) + " dimensions, expected 0 to " +
                          std::to_string(kMostDimensions));
  if (tensor.ndim > 0 && tensor.shape == nullptr) return tl::unexpected<std::string>("it has no shape");
  ForeignArray array;
  array.type = *type;
  for (std::int32_t i = 0; i < tensor.ndim; ++i) {
    std::int64_t size = 0;
    std::memcpy(&size, tensor.shape + i, sizeof size);
    if (size < 0) return tl::unexpected("a size of " + std::to_string(size) + ", expected 0 or more");
    array.sizes.push_back(size);
  }
  if (!set_strides(tensor, array)) return tl::unexpected<std::string>("strides that reach beyond all memory");
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (tensor.byte_offset > std::numeric_limits<std::uintptr_t>::max() - address)
    return tl::unexpected("a byte offset of " + std::to_string(tensor.byte_offset));
  if (tensor.data != nullptr) array.data = reinterpret_cast<const void*>(address + tensor.byte_offset);
  if (const auto memory = memory_of(array); !memory) return tl::unexpected(memory.error());
  return array;
}

tl::expected<ForeignArray, std::string> array_behind(const void* capsule_pointer, DlVersion version) {
  constexpr const char* unreadable = "its capsule points to memory that cannot be read";
  DlTensor tensor;
  if (version == DlVersion::before_1) {
    const auto managed = copy_of<DlManagedTensor>(capsule_pointer);
    if (!managed) return tl::unexpected<std::string>(unreadable);
    tensor = managed->tensor;
  } else {
    const auto managed = copy_of<DlManagedTensorVersioned>(capsule_pointer);
    if (!managed) return tl::unexpected<std::string>(unreadable);
    if (managed->major != 1)
      return tl::unexpected("DLPack " + std::to_string(managed->major) + "." +
                            std::to_string(managed->minor) + ", expected 1.x");
    tensor = managed->tensor;
  }
  const bool sane = tensor.ndim <= static_cast<std::int32_t>(kMostDimensions);
  if (sane && tensor.shape != nullptr && !has_readable_dimensions(tensor))
    return tl::unexpected<std::string>("its shape or its strides are in memory that cannot be read");
  return array_of(tensor);
}

}  // namespace gradmon
