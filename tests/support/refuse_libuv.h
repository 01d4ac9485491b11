// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace gradmon {

// Makes a TCPStore of these options use no libuv: refuse_libuv(options, 0). Debian's torch 2.6 uses libuv by
// default but is built without it; 1.13 has no such option.
template <typename Options>
auto refuse_libuv(Options& options, int) -> decltype(options.useLibUV, void()) {
  options.useLibUV = false;
}
template <typename Options>
void refuse_libuv(Options&, long) {}

}  // namespace gradmon
