// SPDX-License-Identifier: Apache-2.0
// All numbers of one tensor, in one pass over it.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tl/expected.hpp>

#include "control/vocabulary.h"

namespace gradmon {

// The numbers of a tensor, or why it has none.
struct TensorStats {
  enum class Outcome : std::uint8_t {
    measured,
    empty,           // no elements
    not_applicable,  // undefined, meta, or its storage is freed or has no memory
  };
  Outcome outcome = Outcome::empty;
  DType dtype = DType::unknown;
  std::array<double, kOps> values{};  // by Op; hold if measured
};

DType dtype_of(const at::Tensor& tensor);

struct DeviceNumbers;  // device_numbers.h

// What is known at once, and what a device still computes: `values` hold only
// where there is no `pending`, else they are NaN until DeviceBatch has them.
struct StartedStats {
  TensorStats stats;
  std::shared_ptr<const DeviceNumbers> pending;
};

// Any thread that may read the tensor. Changes neither it nor the gradient
// mode. Reads dense and expanded memory in place, other strides piece by piece,
// large tensors on torch's own threads; the result does not depend on their
// number. A sparse tensor has the numbers of the dense one, a complex one those of
// its real view (twice the elements), a quantised one is dequantised. On other devices
// torch's ops compute, queued as the tensor now is. The error is torch's message.
tl::expected<StartedStats, std::string> start_tensor_stats(const at::Tensor& tensor, double eps) noexcept;

// The same, with a wait for the device.
tl::expected<TensorStats, std::string> tensor_stats(const at::Tensor& tensor, double eps) noexcept;

}  // namespace gradmon
