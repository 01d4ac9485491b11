// SPDX-License-Identifier: Apache-2.0
// The arguments that the host passes to the kernel of totals_kernel.cu. Compiled for the host and, by NVRTC
// without the standard library, for the device.
#pragma once

// Tensors of one launch. Kernel parameters take 4 KB before CUDA 12.1, 32,764 bytes since.
#ifndef GRADMON_TENSORS
#define GRADMON_TENSORS 1000
#endif

namespace gradmon::device {

// The kernel's result for one tensor. min and max ignore NaN: infinity and minus infinity if all numbers are
// NaN.
struct Totals {
  double min;
  double max;
  double sum;
  double sum_squares;
  double nans;
  double zeros;  // elements with abs(x) < eps
};

struct TensorPart {
  const void* data;  // aligned for the element type
  unsigned long long count;
  unsigned first_chunk;  // index in the launch
  unsigned chunks;
  unsigned chunk_tiles;  // size of each chunk but the last, in kTileBytes
  unsigned result;       // index of its result
};

template <int kTensors>
struct Launch {
  Totals* results;
  Totals* partials;    // one per chunk
  unsigned* finished;  // one per tensor; 0 before and after the launch
  double eps;
  float threshold;  // abs(x) < threshold in float32 is abs(x) < eps in double, for each narrower x
  unsigned tensors;
  TensorPart parts[kTensors];
};

constexpr int kThreads = 256;
constexpr int kLoads = 4;                                // of 16 bytes, in flight in each thread
constexpr unsigned kTileBytes = kThreads * kLoads * 16;  // that a block reads at once
constexpr unsigned kLeastTiles = 4;                      // per chunk
constexpr unsigned kMostChunks = 4096;                   // per tensor

#ifdef __CUDACC__
#define GRADMON_BOTH __device__ inline
#else
#define GRADMON_BOTH inline
#endif

// Sets the numbers of chunks and tiles, which depend on the tensor's size alone.
GRADMON_BOTH void divide(TensorPart& part, unsigned element_bytes) {
  const unsigned long long tiles = (part.count * element_bytes + kTileBytes - 1) / kTileBytes;
  const unsigned long long least = (tiles + kMostChunks - 1) / kMostChunks;
  part.chunk_tiles = static_cast<unsigned>(least < kLeastTiles ? kLeastTiles : least);
  part.chunks = static_cast<unsigned>((tiles + part.chunk_tiles - 1) / part.chunk_tiles);
}

// The parts of a chunk: elements before the first whole vector of 16 bytes (first chunk only), whole vectors,
// counted from `head`, and elements after the last vector (last chunk only).
struct ChunkRange {
  unsigned head;  // elements before the first vector of the tensor, also in the other chunks
  unsigned long long first_vector;
  unsigned long long end_vector;
  unsigned long long tail;  // the first element after the last vector of the tensor
};

GRADMON_BOTH ChunkRange range_of(const TensorPart& part, unsigned chunk, unsigned element_bytes) {
  const auto address = reinterpret_cast<unsigned long long>(part.data);
  const unsigned in_vector = 16 / element_bytes;
  const auto before = static_cast<unsigned>((16 - address % 16) % 16 / element_bytes);
  ChunkRange range{};
  range.head = before < part.count ? before : static_cast<unsigned>(part.count);
  const unsigned long long vectors = (part.count - range.head) / in_vector;
  const unsigned long long chunk_vectors = part.chunk_tiles * (kTileBytes / 16ULL);
  range.first_vector = chunk * chunk_vectors;
  range.end_vector = range.first_vector + chunk_vectors;
  if (range.end_vector > vectors) range.end_vector = vectors;
  range.tail = range.head + vectors * in_vector;
  return range;
}

}  // namespace gradmon::device
