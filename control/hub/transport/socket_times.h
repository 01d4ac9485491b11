// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace gradmon {

// For every ZeroMQ socket of the hub, in milliseconds.
inline constexpr int kLingerMs = 100;      // longest delay of the end by unsent messages
inline constexpr int kHandshakeMs = 2000;  // a peer that needs longer for its handshake is dropped

}  // namespace gradmon
