// SPDX-License-Identifier: Apache-2.0
// A rank's end of the control network, with the keys that its options name.
// Reads key files: called at the start, on the thread that starts the rank, and by
// the agent where it finds another rank 0 than the one it knocked at.
#pragma once

#include <memory>
#include <string>
#include <tl/expected.hpp>

#include "control/net/agent_options.h"
#include "control/net/bus.h"

namespace gradmon {

// Rank 0: listens at `endpoint`, and broadcasts beside it. TCP is refused where
// options.keys names no usable keys, but for what options.loopback accepts.
tl::expected<std::unique_ptr<Bus>, std::string> listening_bus(const AgentOptions& options,
                                                              const std::string& endpoint);
// Any other rank; connected later.
tl::expected<std::unique_ptr<Bus>, std::string> asking_bus(const AgentOptions& options);

}  // namespace gradmon
