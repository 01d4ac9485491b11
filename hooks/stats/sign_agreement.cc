// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/sign_agreement.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hooks/stats/sign_kernel.h"

namespace gradmon {
namespace {

constexpr std::size_t kChunks = 64;                   // at most
constexpr std::size_t kChunk = std::size_t{1} << 18;  // elements of a chunk, at least

std::optional<FloatType> float_type_of(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return FloatType::float32;
    case c10::ScalarType::Double:
      return FloatType::float64;
    case c10::ScalarType::Half:
      return FloatType::float16;
    case c10::ScalarType::BFloat16:
      return FloatType::bfloat16;
    default:
      return std::nullopt;
  }
}

bool has_signs(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_meta() && !tensor.is_complex() &&
         !tensor.is_quantized();
}

bool lie_alike(const at::Tensor& a, const at::Tensor& b) {
  const auto readable = [](const at::Tensor& tensor) {
    return tensor.device().is_cpu() && tensor.has_storage() && !tensor.is_neg() &&
           tensor.is_non_overlapping_and_dense();
  };
  return a.scalar_type() == b.scalar_type() && readable(a) && readable(b) && a.strides() == b.strides();
}

std::int64_t sum_in_memory(FloatType type, const void* a, const void* b, std::size_t count) {
  const std::size_t chunk = std::max(kChunk, (count + kChunks - 1) / kChunks);
  if (count <= chunk) return kernel_sign_agreement(type, a, b, count);
  std::array<std::int64_t, kChunks> sums{};
  const std::size_t chunks = (count + chunk - 1) / chunk;
  at::parallel_for(0, static_cast<std::int64_t>(chunks), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const std::size_t start = i * chunk * size_of(type);
      sums[i] = kernel_sign_agreement(type, static_cast<const unsigned char*>(a) + start,
                                      static_cast<const unsigned char*>(b) + start,
                                      std::min(chunk, count - i * chunk));
    }
  });
  std::int64_t sum = 0;
  for (const std::int64_t part : sums) sum += part;
  return sum;
}

double share_of(double sum, double elements) { return (sum / elements + 1) / 2; }

DeviceNumbers::Values share_alone(const double* sum, double elements) { return {share_of(*sum, elements)}; }

// An exact integer; its double is exact for fewer than 2⁵³ elements.
at::Tensor sum_by_torch(const at::Tensor& gradient, const at::Tensor& momentum) {
  const at::Tensor beside =
      momentum.device() == gradient.device() ? momentum : momentum.to(gradient.device());
  return (gradient.sign() * beside.sign()).sum(at::kLong);
}

}  // namespace

PendingNumbers pending_sign_agreement(const at::Tensor& gradient, const at::Tensor& momentum) {
  return pending_numbers({sum_by_torch(gradient, momentum)}, static_cast<double>(gradient.numel()),
                         share_alone);
}

std::optional<SignAgreement> sign_agreement(const at::Tensor& gradient, const at::Tensor& momentum) {
  if (!has_signs(gradient) || !has_signs(momentum) || gradient.sizes() != momentum.sizes()) {
    return std::nullopt;
  }
  if (gradient.numel() == 0) return std::nullopt;
  const c10::NoGradGuard no_grad;
  const auto elements = static_cast<double>(gradient.numel());
  const auto type = float_type_of(gradient.scalar_type());
  if (type && lie_alike(gradient, momentum)) {
    const auto count = static_cast<std::size_t>(gradient.numel());
    const auto sum = sum_in_memory(*type, gradient.data_ptr(), momentum.data_ptr(), count);
    return SignAgreement{share_of(static_cast<double>(sum), elements), {}};
  }
  if (!gradient.is_cpu()) {
    return SignAgreement{std::numeric_limits<double>::quiet_NaN(),
                         pending_sign_agreement(gradient, momentum)};
  }
  return SignAgreement{share_of(sum_by_torch(gradient, momentum).item<double>(), elements), {}};
}

}  // namespace gradmon
