// SPDX-License-Identifier: Apache-2.0
// Any description of an array is read or refused: an array that is not refused has a range of memory, and its
// elements lie within that range. Elements within the bytes that the description points to are then read.
// The input: how the data pointer and the dimensions are given (1), code, bits and lanes of the type (4),
// device (1), byte offset (8), then a size and a stride of 8 bytes each for every dimension.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "hooks/probes/foreign_array.h"
#include "tests/fuzz/promise.h"

namespace {

using namespace gradmon;
using gradmon::fuzz::promise;

constexpr std::size_t kDataBytes = 4096;

// True if the kernel can read there. Such memory is this program's own, freed or AddressSanitizer's, and the
// sanitizer would report that array_behind() reads it. A syscall(), because the sanitizer checks the memory
// that write() is given.
bool kernel_reads(std::int64_t address) {
  static int ends[2] = {-1, -1};
  if (ends[0] < 0) promise(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "a pipe");
  const auto written = ::syscall(SYS_write, ends[1], address, sizeof(std::int64_t));
  char read[sizeof(std::int64_t)];
  if (written > 0) promise(::read(ends[0], read, sizeof read) == written, "the pipe is empty again");
  return written == sizeof(std::int64_t);
}

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  std::size_t left() const { return left_; }

  // Zeros when the input has ended.
  template <typename Number>
  Number take() {
    Number number{};
    const std::size_t taken = left_ < sizeof number ? left_ : sizeof number;
    std::memcpy(&number, data_, taken);
    data_ += taken;
    left_ -= taken;
    return number;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

enum Choice : std::uint8_t {
  kNoData = 1,
  kNoShape = 2,
  kNoStrides = 4,
  kWildDimensions = 8,
  kVersioned = 16
};

// Walks along each dimension by itself, and to the far corner.
void check_corners(const ForeignArray& array, const MemoryRange& memory) {
  const auto base = static_cast<const unsigned char*>(array.data) - memory.begin;
  std::ptrdiff_t lowest = base, highest = base;
  for (std::size_t i = 0; i < array.sizes.size(); ++i) {
    const std::ptrdiff_t reach = (array.sizes[i] - 1) * array.strides[i];
    (reach < 0 ? lowest : highest) += reach;
  }
  promise(lowest == 0, "the range begins at the lowest element");
  promise(static_cast<std::size_t>(highest) + size_of(array.type) == memory.bytes,
          "the range ends at the highest element");
}

void check(const DlTensor& tensor, const std::vector<unsigned char>& data) {
  const auto array = array_of(tensor);
  if (!array) return promise(!array.error().empty(), "a refusal has a reason");
  const auto memory = memory_of(*array);
  promise(memory.has_value(), "an array that is read has a range of memory");
  if (memory->bytes == 0) return promise(array->empty(), "an array with elements has bytes");
  check_corners(*array, *memory);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory->begin);
  const auto first = reinterpret_cast<std::uintptr_t>(data.data());
  if (begin < first || begin - first > data.size() || memory->bytes > data.size() - (begin - first)) return;
  promise(is_readable(*memory), "bytes of this program are readable");
  volatile unsigned sum = 0;  // The sanitizer looks.
  for (std::size_t i = 0; i < memory->bytes; ++i) sum = sum + memory->begin[i];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size > 0)
    static_cast<void>(type_of_format({reinterpret_cast<const char*>(bytes + 1), size - 1}, bytes[0]));
  Input input(bytes, size);
  const auto choice = input.take<std::uint8_t>();
  std::vector<unsigned char> data(kDataBytes);
  DlTensor tensor;
  tensor.dtype.code = input.take<std::uint8_t>();
  tensor.dtype.bits = input.take<std::uint8_t>();
  tensor.dtype.lanes = input.take<std::uint16_t>();
  tensor.device.type = input.take<std::int8_t>();
  tensor.byte_offset = input.take<std::uint64_t>();
  std::vector<std::int64_t> shape, strides;
  while (input.left() > 0) {
    shape.push_back(input.take<std::int64_t>());
    strides.push_back(input.take<std::int64_t>());
  }
  tensor.data = (choice & kNoData) != 0 ? nullptr : data.data();
  tensor.shape = (choice & kNoShape) != 0 ? nullptr : shape.data();
  tensor.strides = (choice & kNoStrides) != 0 ? nullptr : strides.data();
  tensor.ndim = static_cast<std::int32_t>(shape.size());
  check(tensor, data);
  DlManagedTensorVersioned managed;
  managed.major = choice >> 5U;
  managed.tensor = tensor;
  if ((choice & kWildDimensions) != 0) {
    std::int64_t address = 0;
    if (!shape.empty() && !kernel_reads(shape[0])) address = shape[0];
    managed.tensor.shape = reinterpret_cast<std::int64_t*>(address);
    managed.tensor.ndim = 1;
  }
  const bool versioned = (choice & kVersioned) != 0;
  const void* pointer = versioned ? static_cast<const void*>(&managed) : &managed.tensor;
  // As before version 1, the tensor is followed by two pointers, which are not looked at.
  if (versioned) static_cast<void>(array_behind(pointer, DlVersion::since_1));
  return 0;
}
