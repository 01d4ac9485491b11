// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/sign_agreement.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hooks/stats/float_chunks.h"
#include "hooks/stats/readable.h"
#include "hooks/stats/sign_kernel.h"

namespace gradmon {
namespace {

bool same_cpu_layout(const at::Tensor& a, const at::Tensor& b) {
  const auto readable = [](const at::Tensor& tensor) {
    return tensor.device().is_cpu() && tensor.has_storage() && !tensor.is_neg() &&
           tensor.is_non_overlapping_and_dense();
  };
  return a.scalar_type() == b.scalar_type() && readable(a) && readable(b) && a.strides() == b.strides();
}

std::int64_t sum_in_memory(FloatType type, const void* a, const void* b, std::size_t count) {
  const auto read = [&](std::size_t first, std::size_t size) {
    const std::size_t start = first * size_of(type);
    return kernel_sign_agreement(type, static_cast<const unsigned char*>(a) + start,
                                 static_cast<const unsigned char*>(b) + start, size);
  };
  return read_in_chunks<std::int64_t>(count, read, [](std::int64_t& all, std::int64_t one) { all += one; });
}

// `elements` is negative for the sum of negated signs.
double share_of(double sum, double elements) { return (sum / elements + 1) / 2; }

double signed_elements(const at::Tensor& gradient, Sense sense) {
  const auto elements = static_cast<double>(gradient.numel());
  return sense == Sense::negated ? -elements : elements;
}

std::optional<DeviceScalars::Values> share_alone(const double* sum, double elements) {
  return DeviceScalars::Values{share_of(*sum, elements)};
}

constexpr std::int64_t kSignsAtATime = std::int64_t{1} << 24;  // elements that torch's ops make at a time

// An exact integer; its double is exact for fewer than 2⁵³ elements.
at::Tensor sum_by_torch(const at::Tensor& gradient, const at::Tensor& momentum) {
  const at::Tensor flat = gradient.reshape({-1}), beside = momentum.to(gradient.device()).reshape({-1});
  at::Tensor sum;
  for (std::int64_t begin = 0; begin < flat.numel(); begin += kSignsAtATime) {
    const std::int64_t size = std::min(kSignsAtATime, flat.numel() - begin);
    const at::Tensor part =
        (flat.narrow(0, begin, size).sign() * beside.narrow(0, begin, size).sign()).sum(at::kLong);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

}  // namespace

PendingScalars pending_sign_agreement(const at::Tensor& gradient, const at::Tensor& momentum, Sense sense) {
  return pack_scalars({sum_by_torch(gradient, momentum)}, signed_elements(gradient, sense), share_alone);
}

std::optional<SignAgreement> sign_agreement(const at::Tensor& gradient, const at::Tensor& momentum,
                                            Sense sense) {
  if (!why_unreadable(gradient).empty() || !why_unreadable(momentum).empty()) return std::nullopt;
  if (gradient.sizes() != momentum.sizes()) return std::nullopt;
  const c10::NoGradGuard no_grad;
  const double elements = signed_elements(gradient, sense);
  const auto type = float_type_of(gradient.scalar_type());
  if (type && same_cpu_layout(gradient, momentum)) {
    const auto count = static_cast<std::size_t>(gradient.numel());
    const auto sum = sum_in_memory(*type, gradient.data_ptr(), momentum.data_ptr(), count);
    return SignAgreement{share_of(static_cast<double>(sum), elements), {}};
  }
  if (!gradient.is_cpu()) {
    return SignAgreement{std::numeric_limits<double>::quiet_NaN(),
                         pending_sign_agreement(gradient, momentum, sense)};
  }
  return SignAgreement{share_of(sum_by_torch(gradient, momentum).item<double>(), elements), {}};
}

}  // namespace gradmon
