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
  float8_e5m2fnuz
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

// Checks that memory of another library can be read. Any thread. Asks the kernel whether every page is
// mapped, and whether a sample of the pages may be read: each page of the first 4 MiB, then one of every 2
// MiB, and the last page. This finds wrong addresses and memory that has been freed to the system. It cannot
// find memory that is mapped for something else. Another thread may unmap the memory after the answer.
bool is_readable(MemoryRange range) noexcept;

// The element type of a format of Python's buffer protocol (the module `struct`, as PEP 3118 extends it) for
// one number, or the reason why it cannot be read: text, a structure, an object, another byte order, or an
// `item_size` that the format does not have.
tl::expected<ElementType, std::string> type_of_format(std::string_view format, std::size_t item_size);

// Reads DLPack's description of an array, without torch's from_dlpack(), which ends the process for a
// negative stride. Any thread. The memory layout of DLPack's structures, as a capsule points to them:
// https://dmlc.github.io/dlpack, versions before 1.0 ("dltensor") and 1.x ("dltensor_versioned"). Every field
// may hold anything.
struct DlDevice {
  std::int32_t type = 0;
  std::int32_t id = 0;
};

struct DlDataType {
  std::uint8_t code = 0;
  std::uint8_t bits = 0;
  std::uint16_t lanes = 0;  // elements of a vector type; 1: a number
};

struct DlTensor {
  void* data = nullptr;
  DlDevice device;
  std::int32_t ndim = 0;
  DlDataType dtype;
  std::int64_t* shape = nullptr;    // `ndim` sizes
  std::int64_t* strides = nullptr;  // in elements; null: row-major and contiguous
  std::uint64_t byte_offset = 0;    // from `data` to the element with all indices 0
};

struct DlManagedTensor {
  DlTensor tensor;
  void* context = nullptr;
  void (*deleter)(DlManagedTensor*) = nullptr;
};

struct DlManagedTensorVersioned {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  void* context = nullptr;
  void (*deleter)(DlManagedTensorVersioned*) = nullptr;
  std::uint64_t flags = 0;
  DlTensor tensor;
};

// DLDeviceType of memory that the CPU can read.
constexpr bool is_host_memory(std::int32_t device_type) {
  return device_type == 1 /* CPU */ || device_type == 3 /* CUDA, pinned */ || device_type == 11 /* ROCm */;
}

// The array, or the reason why it cannot be read. The fields may hold anything, but the pointers to shape and
// strides must be null or readable for `ndim` numbers. memory_of() accepts the array.
tl::expected<ForeignArray, std::string> array_of(const DlTensor& tensor);

// The same behind the pointer of a capsule, which may be any address: the pointers are checked, too.
enum class DlVersion : bool { before_1, since_1 };
tl::expected<ForeignArray, std::string> array_behind(const void* capsule_pointer, DlVersion version);

}  // namespace gradmon
