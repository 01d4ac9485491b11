// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/foreign_array.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
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

constexpr std::uintptr_t kPage = 4096;                                // at most the page size of the system
constexpr std::uintptr_t kEachPageWithin = std::uintptr_t{4} << 20U;  // bytes
constexpr std::uintptr_t kFurtherSteps = std::uintptr_t{2} << 20U;

// The kernel reads a signal mask at the address and then refuses the unknown `how`: only an address that
// cannot be read gives EFAULT. Nothing is changed.
bool can_read_at(std::uintptr_t address) noexcept {
  constexpr long no_such_how = -1;
  constexpr std::size_t mask_bytes = 8;
  const std::uintptr_t aligned = address & ~std::uintptr_t{mask_bytes - 1};
  return ::syscall(SYS_rt_sigprocmask, no_such_how, aligned, nullptr, mask_bytes) == 0 || errno != EFAULT;
}

// msync() of pages without changes only checks that all of them are mapped.
bool is_mapped(std::uintptr_t begin, std::uintptr_t end) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = begin & ~(page - 1);
  return ::msync(reinterpret_cast<void*>(first), end - first, MS_ASYNC) == 0 || errno != ENOMEM;
}

constexpr std::string_view kByteOrders = "@=<>!^";

ElementType integer(bool is_signed, std::size_t bytes) {
  if (bytes == 1) return is_signed ? ElementType::int8 : ElementType::uint8;
  if (bytes == 2) return is_signed ? ElementType::int16 : ElementType::uint16;
  if (bytes == 4) return is_signed ? ElementType::int32 : ElementType::uint32;
  return is_signed ? ElementType::int64 : ElementType::uint64;
}

// `native`: sizes are those of C on this machine. The codes of unsigned integers are capital letters.
std::optional<ElementType> real_type(char code, bool native) {
  if (code == '?') return ElementType::boolean;
  if (code == 'e') return ElementType::float16;
  if (code == 'f') return ElementType::float32;
  if (code == 'd') return ElementType::float64;
  const struct {
    char code;
    std::size_t bytes;
  } integers[] = {{'b', 1}, {'h', 2},
                  {'i', 4}, {'l', native ? sizeof(long) : 4},
                  {'q', 8}, {'n', native ? sizeof(std::size_t) : 0}};
  for (const auto& one : integers) {
    const bool is_signed = code == one.code;
    if (one.bytes > 0 && (is_signed || code == one.code - 'a' + 'A')) return integer(is_signed, one.bytes);
  }
  return std::nullopt;
}

std::optional<ElementType> complex_type(char code) {
  if (code == 'e') return ElementType::complex32;
  if (code == 'f') return ElementType::complex64;
  if (code == 'd') return ElementType::complex128;
  return std::nullopt;
}

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

bool is_readable(MemoryRange range) noexcept {
  if (range.bytes == 0) return true;
  const auto begin = reinterpret_cast<std::uintptr_t>(range.begin);
  if (begin == 0 || range.bytes - 1 > UINTPTR_MAX - begin) return false;
  const std::uintptr_t last = begin + range.bytes - 1;
  if (!can_read_at(begin) || !can_read_at(last) || last == UINTPTR_MAX || !is_mapped(begin, last + 1))
    return false;
  std::uintptr_t step = kPage;
  for (std::uintptr_t at = begin; last - at > step; at += step) {
    if (!can_read_at(at + step)) return false;
    if (at - begin >= kEachPageWithin) step = kFurtherSteps;
  }
  return true;
}

tl::expected<ElementType, std::string> type_of_format(std::string_view format, std::size_t item_size) {
  const std::string shown = '"' + std::string(format.substr(0, 40)) + '"';
  char order = '@';
  if (!format.empty() && kByteOrders.find(format.front()) != std::string_view::npos) {
    order = format.front();
    format.remove_prefix(1);
  }
  const bool is_complex = !format.empty() && format.front() == 'Z';
  if (is_complex) format.remove_prefix(1);
  const bool native = order == '@' || order == '^';
  const auto type = format.size() != 1 ? std::nullopt
                    : is_complex       ? complex_type(format.front())
                                       : real_type(format.front(), native);
  if (!type) return tl::unexpected("its elements of format " + shown + " are no numbers that can be read");
  if (size_of(*type) != item_size)
    return tl::unexpected("elements of " + std::to_string(item_size) + " bytes, but format " + shown);
  constexpr bool little_endian = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
  const bool foreign = little_endian ? order == '>' || order == '!' : order == '<';
  if (foreign && item_size > 1) return tl::unexpected("format " + shown + " has the other byte order");
  return *type;
}

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
