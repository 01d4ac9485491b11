// SPDX-License-Identifier: Apache-2.0
// Reads DLPack's description of an array, without torch's from_dlpack(), which ends the process for a
// negative stride. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>

#include "hooks/arrays/foreign_array.h"

namespace gradmon {

// The memory layout of DLPack's structures, as a capsule points to them: https://dmlc.github.io/dlpack,
// versions before 1.0 ("dltensor") and 1.x ("dltensor_versioned"). Every field may hold anything.
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
