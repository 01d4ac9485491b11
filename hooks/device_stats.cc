// SPDX-License-Identifier: Apache-2.0
#include "hooks/device_stats.h"

#include <ATen/ops/stack.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "hooks/stats_kernel.h"

namespace gradmon {
namespace {

// The least number of type T that is not below eps: comparing with it in T
// splits the numbers of T as comparing with eps in double does.
template <typename T>
double narrow_threshold(double eps) {
  const float wide = float_threshold(eps);
  T threshold(wide);
  if (static_cast<float>(threshold) < wide)
    threshold = T(static_cast<std::uint16_t>(threshold.x + 1), T::from_bits());
  return static_cast<float>(threshold);
}

double threshold_of(c10::ScalarType type, double eps) {
  switch (type) {
    case c10::ScalarType::Half:
      return narrow_threshold<c10::Half>(eps);
    case c10::ScalarType::BFloat16:
      return narrow_threshold<c10::BFloat16>(eps);
    case c10::ScalarType::Float:
      return float_threshold(eps);
    default:
      return eps;
  }
}

}  // namespace

std::array<double, kOps> device_stats(const at::Tensor& tensor, double eps) {
  const auto exact = tensor.device().is_mps() ? at::kFloat : at::kDouble;  // no doubles there
  const at::Tensor x = at::isFloatingType(tensor.scalar_type()) ? tensor : tensor.to(exact);
  const auto [smallest, largest] = x.aminmax();
  const at::Tensor sum = x.sum(exact);
  const at::Tensor norm = x.norm(2, exact);
  const at::Tensor nans = x.isnan().sum();
  const at::Tensor zeros = x.abs().lt(threshold_of(x.scalar_type(), eps)).sum();
  const at::Tensor packed =
      at::stack({smallest.to(exact), largest.to(exact), sum, norm, nans.to(exact), zeros.to(exact)})
          .to(at::kCPU)
          .to(at::kDouble);
  const double* numbers = packed.data_ptr<double>();
  const auto elements = static_cast<double>(tensor.numel());
  std::array<double, kOps> values{};
  values[static_cast<std::size_t>(Op::min)] = numbers[0];
  values[static_cast<std::size_t>(Op::max)] = numbers[1];
  values[static_cast<std::size_t>(Op::mean)] = numbers[2] / elements;
  values[static_cast<std::size_t>(Op::norm)] = numbers[3];
  values[static_cast<std::size_t>(Op::nans)] = numbers[4];
  values[static_cast<std::size_t>(Op::zeros)] = numbers[5] / elements;
  return values;
}

}  // namespace gradmon
