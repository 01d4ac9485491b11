// SPDX-License-Identifier: Apache-2.0
// libgradmon-bench-stats.so: tensor_stats() for against_pytorch.py, which calls it by ctypes.
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstdint>

#include "hooks/stats/tensor_stats.h"

// Reads `count` elements of torch's scalar type `type` at `data`, and writes the statistics to `values`, by
// Op. 0: done; 1: they cannot be read.
extern "C" __attribute__((visibility("default"))) int gradmon_bench_stats(void* data, std::int64_t count,
                                                                          int type, double eps,
                                                                          double* values) {
  const at::Tensor tensor = at::from_blob(data, {count}, static_cast<at::ScalarType>(type));
  const auto stats = gradmon::tensor_stats(tensor, eps);
  if (!stats || stats->outcome != gradmon::TensorStats::Outcome::measured) return 1;
  std::copy(stats->values.begin(), stats->values.end(), values);
  return 0;
}
