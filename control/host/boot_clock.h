// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include "control/agree/plan.h"

namespace gradmon {

// CLOCK_BOOTTIME, which also runs while the machine is suspended. Leases and waits use it. Any thread.
inline Ticks boot_now() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::duration_cast<Ticks>(std::chrono::seconds(now.tv_sec) +
                                           std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace gradmon
