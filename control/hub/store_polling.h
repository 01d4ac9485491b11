// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

namespace gradmon {

// How long until a hub reads the process group's store again, after it has read it for `elapsed`. Other hubs
// start within seconds as a rule. Unset after a minute: from then on a hub finds others by directory only.
inline std::optional<std::chrono::milliseconds> store_poll_interval(
    std::chrono::steady_clock::duration elapsed) {
  if (elapsed > std::chrono::seconds{60}) return {};
  return std::chrono::milliseconds{elapsed < std::chrono::seconds{3} ? 250 : 1000};
}

// How long a new hub waits before it first reads the store. Where the launcher says that all ranks are on one
// host, they have one hub as a rule.
inline std::chrono::milliseconds store_poll_delay(std::optional<bool> several_hosts) {
  return std::chrono::milliseconds{several_hosts == false ? 1000 : 0};
}

}  // namespace gradmon
