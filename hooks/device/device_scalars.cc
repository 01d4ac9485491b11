// SPDX-License-Identifier: Apache-2.0
#include "hooks/device/device_scalars.h"

#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace gradmon {

std::optional<c10::Stream> current_stream(const c10::Device& device) {
  if (!c10::impl::hasDeviceGuardImpl(device.type())) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

PendingScalars pack_scalars(const std::vector<at::Tensor>& scalars, double elements,
                            DeviceScalars::Finish finish, const char* why_absent) {
  const at::Tensor& first = scalars.front();
  const at::Tensor numbers = at::zeros({static_cast<std::int64_t>(kOps)}, first.options().dtype(at::kDouble));
  for (std::size_t i = 0; i < scalars.size(); ++i)
    numbers.select(0, static_cast<std::int64_t>(i)).copy_(scalars[i]);
  return std::make_shared<const DeviceScalars>(
      DeviceScalars{numbers, current_stream(first.device()), elements, finish, why_absent});
}

}  // namespace gradmon
