// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/moment_stats.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hooks/device/device_fetch.h"
#include "hooks/stats/float_chunks.h"
#include "hooks/stats/readable.h"

namespace gradmon {
namespace {

constexpr std::size_t kWidened = 1024;                    // elements widened to double at a time
constexpr std::int64_t kAtATime = std::int64_t{1} << 22;  // elements widened to double at a time, on a device

AdamCorrections corrections_of(const AdamStep& step) {
  const double steps = step.device_steps.defined() ? step.device_steps.item<double>() : step.steps;
  return {1 - std::pow(step.beta1, steps), 1 - std::pow(step.beta2, steps), step.eps};
}

// Elements of one of the types that float_type_of() knows.
struct Elements {
  FloatType type;
  const unsigned char* data;

  explicit Elements(const at::Tensor& tensor)
      : type(*float_type_of(tensor.scalar_type())),
        data(static_cast<const unsigned char*>(tensor.data_ptr())) {}

  template <typename T>
  const T* at(std::size_t place) const {
    return reinterpret_cast<const T*>(data) + place;
  }

  void widen(std::size_t place, std::size_t count, double* to) const {
    switch (type) {
      case FloatType::float32:
        return copy_from(at<float>(place), count, to);
      case FloatType::float64:
        return copy_from(at<double>(place), count, to);
      case FloatType::float16:
        return copy_from(at<c10::Half>(place), count, to);
      case FloatType::bfloat16:
        return copy_from(at<c10::BFloat16>(place), count, to);
    }
  }

 private:
  template <typename T>
  static void copy_from(const T* from, std::size_t count, double* to) {
    for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<double>(from[i]);
  }
};

AdamBins chunk_bins(const Elements& first, const Elements& second, std::size_t begin, std::size_t count,
                    const AdamCorrections& corrections) {
  if (first.type == FloatType::float32 && second.type == FloatType::float32)
    return kernel_adam_bins(first.at<float>(begin), second.at<float>(begin), count, corrections);
  if (first.type == FloatType::float64 && second.type == FloatType::float64)
    return kernel_adam_bins(first.at<double>(begin), second.at<double>(begin), count, corrections);
  AdamBins bins;
  std::array<double, kWidened> wide_first, wide_second;
  for (std::size_t done = 0; done < count; done += kWidened) {
    const std::size_t size = std::min(kWidened, count - done);
    first.widen(begin + done, size, wide_first.data());
    second.widen(begin + done, size, wide_second.data());
    bins.add(kernel_adam_bins(wide_first.data(), wide_second.data(), size, corrections));
  }
  return bins;
}

// In memory order, which is the same for both.
bool same_memory_order(const at::Tensor& first, const at::Tensor& second) {
  const auto readable = [](const at::Tensor& tensor) {
    return tensor.has_storage() && !tensor.is_neg() && tensor.is_non_overlapping_and_dense();
  };
  return readable(first) && readable(second) && first.strides() == second.strides();
}

AdamBins bins_in_memory(const at::Tensor& first, const at::Tensor& second,
                        const AdamCorrections& corrections) {
  const Elements of_first(first), of_second(second);
  return read_in_chunks<AdamBins>(
      static_cast<std::size_t>(first.numel()),
      [&](std::size_t begin, std::size_t size) {
        return chunk_bins(of_first, of_second, begin, size, corrections);
      },
      [](AdamBins& all, const AdamBins& one) { all.add(one); });
}

AdamBins cpu_bins(const at::Tensor& first, const at::Tensor& second, const AdamCorrections& corrections) {
  const bool known = float_type_of(first.scalar_type()) && float_type_of(second.scalar_type());
  if (known && same_memory_order(first, second)) return bins_in_memory(first, second, corrections);
  const auto in_order = [](const at::Tensor& tensor) {
    return tensor.to(at::kDouble).resolve_neg().contiguous();
  };
  return bins_in_memory(in_order(first), in_order(second), corrections);
}

// 1 - βᵗ, on the device: with a number on the host CUDA would multiply by the reciprocal, and rounding would
// put many a ratio of 1 above 1, outside all bins.
at::Tensor correction(double beta, const AdamStep& step, const at::Tensor& like) {
  if (step.device_steps.defined()) return 1 - at::pow(beta, step.device_steps.to(at::kDouble).squeeze());
  return at::full({}, 1 - std::pow(beta, step.steps), like.options().dtype(at::kDouble));
}

// Counts of double, in bins. CUDA's histc refuses to run if the program requires deterministic algorithms.
at::Tensor histogram_of(const at::Tensor& values) {
  if (!at::globalContext().deterministicAlgorithms())
    return at::histc(values, static_cast<std::int64_t>(kBins), -1, 1).to(at::kDouble);
  const at::Tensor inside = values.abs() <= 1;
  const at::Tensor bin = ((values + 1) * (kBins / 2.0)).clamp_max(kBins - 1.0);
  const at::Tensor place =
      at::where(inside, bin, at::scalar_tensor(static_cast<double>(kBins), bin.options()));
  const at::Tensor counts =
      at::zeros({static_cast<std::int64_t>(kBins + 1)}, values.options().dtype(at::kLong));
  const at::Tensor places = place.to(at::kLong);
  return counts.scatter_add(0, places, at::ones_like(places))
      .narrow(0, 0, static_cast<std::int64_t>(kBins))
      .to(at::kDouble);
}

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

at::Tensor pending_adam_histograms(const at::Tensor& first, const at::Tensor& second, const AdamStep& step) {
  const at::Tensor first_correction = correction(step.beta1, step, first);
  const at::Tensor second_correction = correction(step.beta2, step, first);
  const at::Tensor means = first.reshape({-1});
  const at::Tensor squares = second.to(first.device()).reshape({-1});
  at::Tensor sum;
  for (std::int64_t begin = 0; begin < means.numel(); begin += kAtATime) {
    const std::int64_t size = std::min(kAtATime, means.numel() - begin);
    const auto part = [&](const at::Tensor& all) { return all.narrow(0, begin, size).to(at::kDouble); };
    const at::Tensor mean = part(means) / first_correction;
    const at::Tensor root = (part(squares) / second_correction).sqrt();
    const at::Tensor counts = at::stack({histogram_of(mean / (root + step.eps)), histogram_of(mean / root)});
    sum = sum.defined() ? sum + counts : counts;
  }
  return sum;
}

tl::expected<AdamHistograms, std::string> adam_histograms(const at::Tensor& first, const at::Tensor& second,
                                                          const AdamStep& step) {
  if (auto why = why_unreadable(first, "exp_avg"); !why.empty()) return tl::unexpected(std::move(why));
  if (auto why = why_unreadable(second, "exp_avg_sq"); !why.empty()) return tl::unexpected(std::move(why));
  if (first.sizes() != second.sizes())
    return tl::unexpected<std::string>("exp_avg and exp_avg_sq differ in size");
  const c10::NoGradGuard no_grad;
  AdamHistograms histograms;
  if (first.is_cpu() && second.is_cpu()) {
    histograms.bins = cpu_bins(first, second, corrections_of(step));
    return histograms;
  }
  histograms.pending = pending_adam_histograms(first, second, step);
  histograms.stream = current_stream(histograms.pending.device());
  return histograms;
}

void resolve_pending(const std::vector<AdamHistograms*>& histograms) {
  const c10::NoGradGuard no_grad;
  std::vector<QueuedNumbers> queued;
  std::vector<AdamHistograms*> waiting;
  for (AdamHistograms* one : histograms) {
    if (!one->pending.defined()) continue;
    queued.push_back({one->pending, one->stream});
    waiting.push_back(one);
  }
  const HostNumbers fetched = fetch_numbers(queued);
  fetched.wait();
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const double* count = fetched.of(i);
    for (std::uint64_t& bin : waiting[i]->bins.update) bin = static_cast<std::uint64_t>(*count++);
    for (std::uint64_t& bin : waiting[i]->bins.ratio) bin = static_cast<std::uint64_t>(*count++);
    waiting[i]->pending.reset();
  }
}

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
