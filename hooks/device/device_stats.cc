// SPDX-License-Identifier: Apache-2.0
#include "hooks/device/device_stats.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/TypeCast.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hooks/device/zero_threshold.h"

namespace gradmon {
namespace {

// The smallest number of type T that is not below eps: for every x of type T, x < eps in double if and only
// if x < narrow_threshold(eps) in T.
template <typename T>
double narrow_threshold(double eps) {
  const float wide = float_threshold(eps);
  T threshold = c10::convert<T>(wide);  // On Arm, Half has no constructor from float.
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

// Some accelerators have no double. A process has one kind of them.
std::atomic<bool> has_no_double{false};

// Calls `body` with the type of the numbers to compute: double, or float on a device without double.
template <typename Body>
PendingScalars in_widest_type(const c10::Device& device, Body body) {
  const bool always = device.is_cpu() || device.is_cuda();
  if (always || !has_no_double.load(std::memory_order_relaxed)) {
    try {
      return body(at::kDouble);
    } catch (const c10::Error&) {
      if (always) throw;
    }
  }
  PendingScalars numbers = body(at::kFloat);  // throws if the cause was another
  has_no_double.store(true, std::memory_order_relaxed);
  return numbers;
}

// aminmax() and norm() do not take other types. Returns the narrowest type that has all values of the
// tensor's type, at most `widest`: in double, a mask of many elements would take much memory.
at::ScalarType readable_type(const at::Tensor& tensor, at::ScalarType widest) {
  const at::ScalarType type = tensor.scalar_type();
  if (type == at::kHalf || type == at::kBFloat16 || type == at::kFloat) return type;
  const bool is_small = type == at::kBool || type == at::kChar || type == at::kByte;
  if (is_small && tensor.is_cuda()) return at::kHalf;
  return is_small || type == at::kShort ? at::kFloat : widest;
}

}  // namespace

std::optional<c10::Stream> current_stream(const c10::Device& device) {
  if (!c10::impl::hasDeviceGuardImpl(device.type())) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

PendingScalars pack_scalars(const std::vector<at::Tensor>& scalars, double elements,
                            DeviceScalars::Finish finish, const char* why_absent) {
  const at::Tensor& first = scalars.front();
  return in_widest_type(first.device(), [&](at::ScalarType widest) {
    const at::Tensor numbers = at::zeros({static_cast<std::int64_t>(kOps)}, first.options().dtype(widest));
    for (std::size_t i = 0; i < scalars.size(); ++i)
      numbers.select(0, static_cast<std::int64_t>(i)).copy_(scalars[i]);
    return std::make_shared<const DeviceScalars>(
        DeviceScalars{numbers, current_stream(first.device()), elements, finish, why_absent});
  });
}

std::optional<DeviceScalars::Values> values_of_numbers(const double* numbers, double elements) {
  DeviceScalars::Values values{};
  values[static_cast<std::size_t>(Op::min)] = numbers[0];
  values[static_cast<std::size_t>(Op::max)] = numbers[1];
  values[static_cast<std::size_t>(Op::mean)] = numbers[2] / elements;
  values[static_cast<std::size_t>(Op::norm)] = numbers[3];
  values[static_cast<std::size_t>(Op::nans)] = numbers[4];
  values[static_cast<std::size_t>(Op::zeros)] = numbers[5] / elements;
  // NaN if the tensor has a NaN, because then both are NaN.
  values[static_cast<std::size_t>(Op::absmax)] = std::max(std::fabs(numbers[0]), std::fabs(numbers[1]));
  return values;
}

PendingScalars device_stats(const at::Tensor& tensor, double eps) {
  return in_widest_type(tensor.device(), [&](at::ScalarType widest) {
    const at::Tensor x = tensor.to(readable_type(tensor, widest));
    const at::Tensor numbers = at::empty({static_cast<std::int64_t>(kOps)}, x.options().dtype(widest));
    const auto slot = [&](std::int64_t i) { return numbers.select(0, i); };
    const auto [smallest, largest] = x.aminmax();
    slot(0).copy_(smallest);
    slot(1).copy_(largest);
    const auto sum_into = [&](at::Tensor into, const at::Tensor& values) {
      at::sum_out(into, values, at::IntArrayRef{}, false, widest);
    };
    sum_into(slot(2), x);
    at::Tensor norm = slot(3);
    at::norm_out(norm, x, 2, at::IntArrayRef{}, false, widest);
    sum_into(slot(4), x.isnan());
    sum_into(slot(5), x.abs().lt(threshold_of(x.scalar_type(), eps)));
    return std::make_shared<const DeviceScalars>(DeviceScalars{
        numbers, current_stream(x.device()), static_cast<double>(tensor.numel()), values_of_numbers});
  });
}

PendingScalars folded_stats(const std::vector<PendingScalars>& parts) {
  std::vector<at::Tensor> of_parts;
  double elements = 0;
  for (const PendingScalars& part : parts) {
    of_parts.push_back(part->numbers);
    elements += part->elements;
  }
  const at::Tensor all = at::stack(of_parts, 1);
  const at::Tensor numbers = all.sum(1);
  numbers.select(0, 0).copy_(all.select(0, 0).min());
  numbers.select(0, 1).copy_(all.select(0, 1).max());
  numbers.select(0, 3).copy_(all.select(0, 3).norm());
  return std::make_shared<const DeviceScalars>(
      DeviceScalars{numbers, parts.front()->stream, elements, values_of_numbers});
}

}  // namespace gradmon
