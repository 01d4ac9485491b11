// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

namespace gradmon {

// The pause before a hub reads the process group's store again, after reading it for `elapsed`. Other hubs
// usually start within seconds. Unset after a minute: from then on a hub finds others by directory only.
inline std::optional<std::chrono::milliseconds> store_poll_interval(
    std::chrono::steady_clock::duration elapsed) {
  if (elapsed > std::chrono::seconds{60}) return {};
  return std::chrono::milliseconds{elapsed < std::chrono::seconds{3} ? 250 : 1000};
}

// The pause of a new hub before it first reads the store. If the launcher reports a single host, all ranks
// usually have one hub.
inline std::chrono::milliseconds store_poll_delay(std::optional<bool> several_hosts) {
  return std::chrono::milliseconds{several_hosts == false ? 1000 : 0};
}

}  // namespace gradmon
