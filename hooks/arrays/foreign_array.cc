// SPDX-License-Identifier: Apache-2.0
#include "hooks/arrays/foreign_array.h"

#include <algorithm>
#include <limits>

namespace gradmon {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMostOverlapping = std::int64_t{1} << 28U;

// The product of two numbers that are not negative. nullopt: too large.
std::optional<std::int64_t> product(std::int64_t one, std::int64_t other) {
  if (one != 0 && other > kMost / one) return std::nullopt;
  return one * other;
}

std::optional<std::int64_t> sum(std::int64_t one, std::int64_t other) {
  if (other > kMost - one) return std::nullopt;
  return one + other;
}

// Bytes from the first element to the lowest and to the highest, both not negative.
struct Extent {
  std::int64_t below = 0;
  std::int64_t above = 0;
  std::int64_t elements = 1;
};

std::optional<Extent> extent_of(const ForeignArray& array) {
  Extent extent;
  for (std::size_t i = 0; i < array.sizes.size(); ++i) {
    const std::int64_t size = array.sizes[i], stride = array.strides[i];
    if (stride == std::numeric_limits<std::int64_t>::min()) return std::nullopt;
    const auto reach = product(size - 1, stride < 0 ? -stride : stride);
    const auto counted = product(extent.elements, size);
    if (!reach || !counted) return std::nullopt;
    extent.elements = *counted;
    std::int64_t& side = stride < 0 ? extent.below : extent.above;
    const auto further = sum(side, *reach);
    if (!further) return std::nullopt;
    side = *further;
  }
  return extent;
}

}  // namespace

std::optional<ElementType> element_type_of(std::string_view name) {
  for (std::size_t i = 0; i < kElementTypes.size(); ++i) {
    if (kElementTypes[i].name == name) return static_cast<ElementType>(i);
  }
  return std::nullopt;
}

bool ForeignArray::empty() const { return std::count(sizes.begin(), sizes.end(), 0) > 0; }

bool set_contiguous_strides(ForeignArray& array) {
  auto stride = static_cast<std::int64_t>(size_of(array.type));
  array.strides.assign(array.sizes.size(), 0);
  for (std::size_t i = array.sizes.size(); i-- > 0;) {
    array.strides[i] = stride;
    const std::int64_t size = array.sizes[i];
    if (size > 1 && stride > std::numeric_limits<std::int64_t>::max() / size) return false;
    if (size > 1) stride *= size;
  }
  return true;
}

tl::expected<MemoryRange, std::string> memory_of(const ForeignArray& array) {
  if (array.sizes.size() > kMostDimensions || array.strides.size() != array.sizes.size())
    return tl::unexpected(std::to_string(array.sizes.size()) + " dimensions, expected at most " +
                          std::to_string(kMostDimensions));
  for (const std::int64_t size : array.sizes) {
    if (size < 0) return tl::unexpected("a size of " + std::to_string(size) + ", expected 0 or more");
  }
  if (array.empty()) return MemoryRange{};
  if (array.data == nullptr) return tl::unexpected<std::string>("its data are at address 0");
  const auto extent = extent_of(array);
  const auto bytes = extent ? sum(extent->below, extent->above) : std::nullopt;
  const auto end = bytes ? sum(*bytes, static_cast<std::int64_t>(size_of(array.type))) : std::nullopt;
  const auto address = reinterpret_cast<std::uintptr_t>(array.data);
  if (!end || address < static_cast<std::uintptr_t>(extent->below) ||
      address - static_cast<std::uintptr_t>(extent->below) >
          std::numeric_limits<std::uintptr_t>::max() - static_cast<std::uintptr_t>(*end))
    return tl::unexpected<std::string>("sizes and strides that reach beyond all memory");
  const std::int64_t places = *end / static_cast<std::int64_t>(size_of(array.type));
  if (extent->elements > std::max(places, kMostOverlapping))
    return tl::unexpected("more than " + std::to_string(kMostOverlapping) + " elements in " +
                          std::to_string(*end) + " bytes");
  return MemoryRange{static_cast<const unsigned char*>(array.data) - extent->below,
                     static_cast<std::size_t>(*end)};
}

}  // namespace gradmon
