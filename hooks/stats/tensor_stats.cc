// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/tensor_stats.h"

#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <limits>
#include <stdexcept>
#include <vector>

#include "hooks/device/cuda_totals.h"
#include "hooks/device/device_fetch.h"
#include "hooks/device/device_stats.h"
#include "hooks/stats/readable.h"

namespace gradmon {
namespace {

std::array<double, kOps> values_of(const PartialStats& stats) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto elements = static_cast<double>(stats.elements);
  std::array<double, kOps> values{};
  values[static_cast<std::size_t>(Op::min)] = stats.nans > 0 ? kNan : stats.min;
  values[static_cast<std::size_t>(Op::max)] = stats.nans > 0 ? kNan : stats.max;
  values[static_cast<std::size_t>(Op::mean)] = stats.sum / elements;
  values[static_cast<std::size_t>(Op::norm)] = std::sqrt(stats.sum_squares);
  values[static_cast<std::size_t>(Op::nans)] = static_cast<double>(stats.nans);
  values[static_cast<std::size_t>(Op::zeros)] = static_cast<double>(stats.zeros) / elements;
  values[static_cast<std::size_t>(Op::absmax)] =
      stats.nans > 0 ? kNan : std::max(std::fabs(stats.min), std::fabs(stats.max));
  return values;
}

// The extremes and the count of NaN are those of the blocks that were read.
void take_sample(const at::Tensor& tensor, double eps, TensorStats& stats, const Sampling& sampling) {
  const SampledStats sample = sampled_stats(tensor, eps, sampling);
  PartialStats read = sample.of_full_groups;
  read.add(sample.of_rest);
  stats.values = values_of(read);
  const SampleEstimate whole = estimate(sample, sampling.group, static_cast<std::size_t>(tensor.numel()),
                                        kSampleBlock / tensor.element_size());
  stats.values[static_cast<std::size_t>(Op::mean)] = whole.mean;
  stats.values[static_cast<std::size_t>(Op::norm)] = whole.norm;
  stats.values[static_cast<std::size_t>(Op::zeros)] = whole.zeros;
  stats.sample = {whole.share, whole.mean_se, whole.norm_se};
}

// For tests without a device: reads tensors in CPU memory as if on a device, by torch's ops and late.
bool reads_as_on_a_device() {
  static const bool wanted = std::getenv("GRADMON_TEST_READ_AS_ON_A_DEVICE") != nullptr;
  return wanted;
}

bool is_read_in_memory(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && !reads_as_on_a_device();
}

// True if the memory can be read directly, without torch's operators.
bool is_plain_in_memory(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && is_read_in_memory(tensor) && !tensor.is_complex() &&
         !tensor.is_quantized() && !tensor.is_neg() && tensor.has_storage() &&
         reads_in_memory(tensor.scalar_type());
}

// The tensor as strided real numbers; for a sparse tensor in CPU memory only the stored numbers.
at::Tensor plain_values(const at::Tensor& tensor) {
  const bool in_memory = is_read_in_memory(tensor);
  if (tensor.layout() == at::kMkldnn || (tensor.layout() != at::kStrided && !in_memory))
    return plain_values(tensor.to_dense());
  if (tensor.is_sparse()) return plain_values(tensor.coalesce()._values());
  // Compressed sparse. Detached, because view_as_real() of torch 2.13 refuses a view of that layout.
  if (tensor.layout() != at::kStrided) return plain_values(tensor.values().detach());
  if (tensor.is_complex()) return plain_values(at::view_as_real(tensor.resolve_conj()));
  if (tensor.is_quantized()) return tensor.dequantize();
  if (tensor.is_neg()) return tensor.resolve_neg();
  if (in_memory && !reads_in_memory(tensor.scalar_type())) return tensor.to(at::kDouble);
  return tensor;
}

// The statistics of the `elements` zeros that a sparse tensor does not store.
PartialStats not_stored(std::int64_t elements, double eps) {
  PartialStats stats;
  if (elements == 0) return stats;
  stats.elements = 1;
  stats.min = stats.max = 0;
  stats.zeros = eps > 0 ? 1 : 0;
  stats.repeat(static_cast<std::uint64_t>(elements));
  return stats;
}

StartedStats start(const at::Tensor& tensor, double eps) {
  using Outcome = TensorStats::Outcome;
  StartedStats started;
  TensorStats& stats = started.stats;
  stats.outcome = Outcome::not_applicable;
  if (!tensor.defined()) return started;
  if (std::string why = why_no_array(tensor); !why.empty()) throw std::runtime_error(why);
  stats.dtype = dtype_of(tensor);
  if (tensor.is_meta()) return started;
  if (tensor.numel() == 0) {
    stats.outcome = Outcome::empty;
    return started;
  }
  if (!has_allocated_storage(tensor) || read_in_memory(tensor, eps, stats)) return started;
  if (std::string why = why_captured(tensor.device()); !why.empty()) throw std::runtime_error(why);

  const PlainTorch plain;
  const at::Tensor x = plain_values(tensor);
  if (!has_allocated_storage(x)) return started;
  if (is_read_in_memory(x) && x.has_storage()) {
    PartialStats all = not_stored(tensor.numel() * (tensor.is_complex() ? 2 : 1) - x.numel(), eps);
    if (x.numel() > 0) all.add(cpu_stats(x, eps));
    stats.values = values_of(all);
  } else {
    stats.values.fill(std::numeric_limits<double>::quiet_NaN());
    if (x.is_cuda()) started.pending = cuda_totals(x, eps);
    if (!started.pending) started.pending = device_stats(x, eps);
  }
  stats.outcome = Outcome::measured;
  return started;
}

constexpr std::int64_t kPieceInMemory = std::int64_t{1} << 18;
constexpr std::int64_t kPieceOnDevice = std::int64_t{1} << 23;

StartedStats start(const ScaledValues& values, double eps) {
  using Outcome = TensorStats::Outcome;
  StartedStats started;
  TensorStats& stats = started.stats;
  stats.dtype = values.dtype;
  stats.outcome = values.codes.numel() == 0 ? Outcome::empty : Outcome::not_applicable;
  const auto readable = [](const at::Tensor& part) { return !part.is_meta() && has_allocated_storage(part); };
  if (values.codes.numel() == 0 || !readable(values.codes) || !readable(values.scale)) return started;
  if (std::string why = why_captured(values.codes.device()); !why.empty()) throw std::runtime_error(why);

  const PlainTorch plain;
  if (is_read_in_memory(values.codes)) {
    PartialStats all;
    each_piece(values, kPieceInMemory, [&](const at::Tensor& piece) { all.add(cpu_stats(piece, eps)); });
    stats.values = values_of(all);
  } else {
    std::vector<PendingScalars> parts;
    each_piece(values, kPieceOnDevice,
               [&](const at::Tensor& piece) { parts.push_back(device_stats(piece, eps)); });
    stats.values.fill(std::numeric_limits<double>::quiet_NaN());
    started.pending = folded_stats(parts);
  }
  stats.outcome = Outcome::measured;
  return started;
}

TensorStats finish(const StartedStats& started) {
  TensorStats stats = started.stats;
  if (!started.pending) return stats;
  DeviceBatch batch;
  batch.add(started.pending);
  stats.values = batch.resolve().front().value();
  return stats;
}

template <typename Body>
auto guarded(Body&& body) noexcept -> tl::expected<decltype(body()), std::string> {
  try {
    return body();
  } catch (const std::exception& error) {
    return tl::unexpected<std::string>(error.what());
  } catch (...) {
    return tl::unexpected<std::string>("an exception of unknown type");
  }
}

}  // namespace

DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case c10::ScalarType::Float:
      return DType::float32;
    case c10::ScalarType::Double:
      return DType::float64;
    case c10::ScalarType::Half:
      return DType::float16;
    case c10::ScalarType::BFloat16:
      return DType::bfloat16;
    case c10::ScalarType::Char:
      return DType::int8;
    case c10::ScalarType::Byte:
      return DType::uint8;
    case c10::ScalarType::Short:
      return DType::int16;
    case c10::ScalarType::Int:
      return DType::int32;
    case c10::ScalarType::Long:
      return DType::int64;
    case c10::ScalarType::Bool:
      return DType::boolean;
    case c10::ScalarType::ComplexFloat:
      return DType::complex64;
    case c10::ScalarType::ComplexDouble:
      return DType::complex128;
    default:
      break;
  }
  // By name, "Float8_e4m3fn", because older versions of torch have fewer types.
  std::string name = c10::toString(tensor.scalar_type());
  if (name == "ComplexHalf") name = "complex32";
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return dtype_named("torch." + name);
}

bool read_in_memory(const at::Tensor& tensor, double eps, TensorStats& stats, const Sampling& sampling) {
  if (!tensor.defined() || !is_plain_in_memory(tensor) || tensor.numel() == 0 ||
      !has_allocated_storage(tensor))
    return false;
  stats.dtype = dtype_of(tensor);
  if (is_sampled(tensor, sampling)) {
    take_sample(tensor, eps, stats, sampling);
  } else {
    stats.values = values_of(cpu_stats(tensor, eps));
    stats.sample.share = 0;
  }
  stats.outcome = TensorStats::Outcome::measured;
  return true;
}

tl::expected<StartedStats, std::string> start_tensor_stats(const at::Tensor& tensor, double eps) noexcept {
  return guarded([&] { return start(tensor, eps); });
}

tl::expected<StartedStats, std::string> start_tensor_stats(const ScaledValues& values, double eps) noexcept {
  return guarded([&] { return start(values, eps); });
}

tl::expected<TensorStats, std::string> tensor_stats(const at::Tensor& tensor, double eps) noexcept {
  return guarded([&] { return finish(start(tensor, eps)); });
}

}  // namespace gradmon
