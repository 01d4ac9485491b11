// SPDX-License-Identifier: Apache-2.0
// All statistics of one tensor, in one pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tl/expected.hpp>

#include "control/vocabulary.h"
#include "hooks/stats/block_sample.h"
#include "hooks/stats/kernels.h"
#include "hooks/stats/scaled_values.h"

namespace gradmon {

// Returns true if cpu_stats() reads elements of this type.
bool reads_in_memory(c10::ScalarType type);

// `tensor`: strided, its storage allocated in full, of a type that reads_in_memory() accepts, without the
// negative bit. Contiguous memory is read in chunks whose size depends on the number of elements only, on
// torch's threads if there are several chunks. A dimension of stride 0 is read once. Other strides are read
// run by run. Does not allocate up to 8 dimensions.
PartialStats cpu_stats(const at::Tensor& tensor, double eps);

// True if sampled_stats() reads such a tensor: it is large, and its elements are one array, in any order.
bool is_sampled(const at::Tensor& tensor, const Sampling& sampling);
// cpu_stats() of the sampled blocks.
SampledStats sampled_stats(const at::Tensor& tensor, double eps, const Sampling& sampling);

// The statistics of a tensor, or the reason why it has none.
struct TensorStats {
  enum class Outcome : std::uint8_t {
    measured,
    empty,           // no elements
    not_applicable,  // undefined, meta, or its storage is freed or absent
  };
  Outcome outcome = Outcome::empty;
  DType dtype = DType::unknown;
  std::array<double, kOps> values{};  // by Op; valid if measured
  // The marks of a sample, whose values are estimates. `share` is 0 if all was read.
  struct Sample {
    double share = 0, mean_se = 0, norm_se = 0;
  } sample = {};
};

DType dtype_of(const at::Tensor& tensor);

struct DeviceScalars;  // device_stats.h

// Statistics that a device may still be computing. If `pending` is not null, `stats.values` are NaN;
// DeviceBatch::resolve() returns them.
struct StartedStats {
  TensorStats stats;
  std::shared_ptr<const DeviceScalars> pending;
};

// Any thread that may read the tensor. Tensor and gradient mode stay unchanged. On the CPU: reads contiguous
// and expanded memory in place, other strides run by run, large tensors on torch's threads; the result does
// not depend on their number. On a CUDA device: queues our kernel (cuda_totals.h); for other tensors and
// devices: queues torch's ops; on the tensor as it is now. A sparse tensor has the statistics of the dense
// tensor, a complex tensor those of its real view (twice the elements); a quantised tensor is dequantised.
// The error is torch's message.
tl::expected<StartedStats, std::string> start_tensor_stats(const at::Tensor& tensor, double eps) noexcept;

// Reads a strided tensor in CPU memory at once into `stats`, as start_tensor_stats() does, or a sample of it.
// False: it is no such tensor, or has no elements.
bool read_in_memory(const at::Tensor& tensor, double eps, TensorStats& stats, const Sampling& sampling = {});

// start_tensor_stats() for the numbers that the values represent. They are computed in pieces of bounded
// memory.
tl::expected<StartedStats, std::string> start_tensor_stats(const ScaledValues& values, double eps) noexcept;

// start_tensor_stats(), then waits for the device.
tl::expected<TensorStats, std::string> tensor_stats(const at::Tensor& tensor, double eps) noexcept;

}  // namespace gradmon
