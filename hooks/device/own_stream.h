// SPDX-License-Identifier: Apache-2.0
// Streams for gradmon's own work on devices.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <optional>

namespace gradmon {

// One of the streams of a torch pool, in turns (CUDA: of 32). If torch (>= 2.6) and the device have one, the
// pool is one that neither programs nor communication libraries use: on a shared stream, their work and ours
// would wait for each other. nullopt: the device has no pools. Any thread.
std::optional<c10::Stream> own_stream(const c10::Device& device);

}  // namespace gradmon
