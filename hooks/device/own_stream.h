// SPDX-License-Identifier: Apache-2.0
// Streams for gradmon's own work on devices.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <optional>

namespace gradmon {

// One of the streams of a pool of torch's, in turns (CUDA: of 32). From a pool that programs and
// communication libraries do not take theirs from, where torch (>= 2.6) and the device have one: on a stream
// of theirs, their work would wait for ours, and ours for theirs. Empty: the device has no pools. Any thread.
std::optional<c10::Stream> own_stream(const c10::Device& device);

}  // namespace gradmon
