// SPDX-License-Identifier: Apache-2.0
// How the kernel divides a tensor: every element belongs to exactly one chunk, every vector is aligned.
#include "hooks/device/totals_layout.h"

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

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
