// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>

namespace gradmon {

// Fixed values for weights and inputs, without a random generator.
inline at::Tensor sine_values(at::IntArrayRef sizes, double phase) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return at::sin(at::arange(count, at::kDouble) * 0.7 + phase).to(at::kFloat).reshape(sizes);
}

}  // namespace gradmon
