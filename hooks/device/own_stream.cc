// SPDX-License-Identifier: Apache-2.0
#include "hooks/device/own_stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace gradmon {
namespace {

// Programs take 0 and -1, libraries 0 and the highest, which is -3 for torch, or lower if the device has
// fewer.
constexpr int kPriority = -2;

template <typename Guard>
c10::Stream stream_of_pool(const Guard& guard, const c10::Device& device, long) {
  return guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}
template <typename Guard>
auto stream_of_pool(const Guard& guard, const c10::Device& device, int)
    -> decltype(guard.getNewStream(device, kPriority)) {
  try {
    return guard.getNewStream(device, kPriority);
  } catch (const c10::Error&) {  // not every device has new streams
    return stream_of_pool(guard, device, 0L);
  }
}

}  // namespace

std::optional<c10::Stream> own_stream(const c10::Device& device) {
  if (!c10::impl::hasDeviceGuardImpl(device.type())) return std::nullopt;
  try {
    return stream_of_pool(c10::impl::VirtualGuardImpl(device.type()), device, 0);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

}  // namespace gradmon
