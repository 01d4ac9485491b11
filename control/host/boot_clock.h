// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include "control/agree/plan.h"

namespace gradmon {

// Milliseconds of the clock that counts suspension: leases and waits are of it. Any thread.
inline Ticks boot_now() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::duration_cast<Ticks>(std::chrono::seconds(now.tv_sec) +
                                           std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace gradmon
