// SPDX-License-Identifier: Apache-2.0
// The tests that need no CUDA device: the kernel's source, and what is said where something is
// missing.
#include "hooks/device/cuda_totals.h"

#include <ATen/ops/zeros.h>

#include <fstream>
#include <iterator>

#include "hooks/device/cuda_driver.h"
#include "hooks/device/totals_layout.h"
#include "tests/support/catch.h"
#include "tests/support/scoped_variable.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::size_t files_in(const fs::path& folder) {
  if (!fs::exists(folder)) return 0;
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

using device::ChunkRange;
using device::TensorPart;

TensorPart part_at(unsigned long long address, unsigned long long count, unsigned element_bytes) {
  TensorPart part{};
  part.data = reinterpret_cast<const void*>(address);
  part.count = count;
  device::divide(part, element_bytes);
  return part;
}

// How often each element is read. A vector that is not aligned, or not within the tensor, counts for all.
std::vector<int> reads_of(const TensorPart& part, unsigned element_bytes) {
  std::vector<int> reads(part.count, 0);
  const unsigned in_vector = 16 / element_bytes;
  for (unsigned chunk = 0; chunk < part.chunks; ++chunk) {
    const ChunkRange range = range_of(part, chunk, element_bytes);
    for (std::uint64_t i = range.first_vector; i < range.end_vector; ++i) {
      const std::uint64_t first = range.head + i * in_vector;
      const std::uint64_t address = reinterpret_cast<std::uint64_t>(part.data) + first * element_bytes;
      if (address % 16 != 0 || first + in_vector > part.count) return {};
      for (std::uint64_t k = first; k < first + in_vector; ++k) ++reads[k];
    }
    if (chunk == 0) {
      for (std::uint64_t k = 0; k < range.head; ++k) ++reads[k];
    }
    if (chunk + 1 == part.chunks) {
      for (std::uint64_t k = range.tail; k < part.count; ++k) ++reads[k];
      if (range.tail < part.count && part.count - range.tail >= device::kThreads)
        return {};  // one thread each
    }
  }
  return reads;
}

TEST_CASE("the library has the text of the kernel and of its layout") {
  const fs::path folder = fs::path(GRADMON_SOURCE) / "hooks/device";
  CHECK(kTotalsKernelSource == text_of(folder / "totals_kernel.cu"));
  CHECK(kTotalsLayoutSource == text_of(folder / "totals_layout.h"));
}

TEST_CASE("a device that is too old is said to be") {
  const CompiledKernel kernel = compile_totals_kernel("Float32", 6, 1, 13000);
  CHECK(kernel.image.empty());
  CHECK(kernel.why == "the device is too old (compute capability 6.1)");
}

TEST_CASE("the kernel is compiled once and kept, or it is said what is missing") {
  const TemporaryDirectory scratch;
  const ScopedVariable cache("XDG_CACHE_HOME", scratch.path().c_str());
  const CompiledKernel kernel = compile_totals_kernel("Bfloat16", 9, 0, 13000);
  const fs::path folder = scratch.path() / "gradmon";
  if (kernel.image.empty()) {
    INFO(kernel.why);
    CHECK((kernel.why == "NVRTC is not found (libnvrtc)" ||
           kernel.why.find("older than NVRTC") != std::string::npos));
    CHECK(files_in(folder) == 0);
  } else {
    CHECK(kernel.image.substr(1, 3) == "ELF");
    REQUIRE(files_in(folder) == 1);
    CHECK(text_of(fs::directory_iterator(folder)->path()) == kernel.image);
    const CompiledKernel again = compile_totals_kernel("Bfloat16", 9, 0, 13000);
    CHECK(again.image == kernel.image);
    CHECK(compile_totals_kernel("Float32", 9, 0, 13000).image != kernel.image);
    CHECK(files_in(folder) == 2);
    const CompiledKernel refused = compile_totals_kernel("NoSuchType", 9, 0, 13000);
    CHECK(refused.image.empty());
    CHECK(refused.why.find("NoSuchType") != std::string::npos);
  }
}

TEST_CASE("without CUDA the driver says what is missing and nothing is disturbed") {
  std::string why;
  if (CudaDriver::find(&why) != nullptr) return;  // there is a device: tests/gpu
  CHECK_FALSE(why.empty());
  const CaptureUndisturbed undisturbed;
  const at::Tensor tensor = at::zeros({3});
  CHECK(why_captured(tensor.device()).empty());
  prepare_cuda_totals(tensor);
  finish_preparing_cuda_totals();
  CHECK(cuda_totals_problem().empty());
  LaunchGroup outer;
  LaunchGroup inner;
  inner.launch();
  outer.launch();
}

TEST_CASE("every element of a tensor is read once, wherever it begins and ends") {
  constexpr unsigned long long kAddress = 1 << 20;
  constexpr unsigned long long kChunkBytes = device::kLeastTiles * device::kTileBytes;
  for (const unsigned bytes : {1U, 2U, 4U, 8U}) {
    const unsigned in_vector = 16 / bytes;
    for (unsigned offset = 0; offset < in_vector; ++offset) {
      std::vector<unsigned long long> counts{1, 2, 3, 7, 15, 16, 17, 255, 4096, 4097};
      for (const unsigned long long chunks : {1ULL, 2ULL, 3ULL}) {
        for (int more = -20; more <= 20; ++more)
          counts.push_back(chunks * kChunkBytes / bytes + static_cast<unsigned long long>(more));
      }
      for (const unsigned long long count : counts) {
        const TensorPart part = part_at(kAddress + offset * bytes, count, bytes);
        INFO(bytes << " bytes, " << count << " elements from element " << offset << ", " << part.chunks
                   << " chunks");
        const bool once = reads_of(part, bytes) == std::vector<int>(count, 1);
        CHECK(once);
      }
    }
  }
}

TEST_CASE("a tensor has some thousand chunks at most, and their sizes are near each other") {
  for (const unsigned long long count :
       {1ULL, 1ULL << 20U, (1ULL << 28U) + 1, 1ULL << 31U, (1ULL << 35U) + 7}) {
    const TensorPart part = part_at(1 << 20, count, 4);
    INFO(count << " elements, " << part.chunks << " chunks of " << part.chunk_tiles << " tiles");
    CHECK(part.chunks >= 1);
    CHECK(part.chunks <= device::kMostChunks);
    const unsigned long long whole = static_cast<unsigned long long>(part.chunk_tiles) * device::kTileBytes;
    CHECK((part.chunks - 1) * whole < count * 4);
    CHECK(part.chunks * whole >= count * 4);
    const ChunkRange last = range_of(part, part.chunks - 1, 4);
    CHECK(last.tail <= count);
    CHECK(last.end_vector * 4 + last.head == last.tail);
  }
}

}  // namespace
}  // namespace gradmon
