// SPDX-License-Identifier: Apache-2.0
// What the host passes to the kernel of totals_kernel.cu. Compiled for both, on the device by NVRTC, without
// the standard library.
#pragma once

// Tensors of one launch. Kernel parameters take 4 KB before CUDA 12.1, 32,764 bytes since.
#ifndef GRADMON_TENSORS
#define GRADMON_TENSORS 1000
#endif

namespace gradmon::device {

// What the kernel finds in one tensor. min and max are those of the numbers that are not NaN: infinity and
// minus infinity if there are none.
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

}  // namespace gradmon::device
