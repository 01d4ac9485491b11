// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace gradmon {

// Of every ZeroMQ socket of the hub, in milliseconds.
inline constexpr int kLingerMs = 100;      // how long what is not sent yet delays the end
inline constexpr int kHandshakeMs = 2000;  // after which a peer that has not introduced itself is dropped

}  // namespace gradmon
