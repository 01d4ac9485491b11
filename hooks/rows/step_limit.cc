// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/step_limit.h"

#include <exception>
#include <string>

#include "control/log.h"

namespace gradmon {

bool StepLimit::reached(std::size_t count) noexcept {
  if (count < most_) return false;
  if (logged_.exchange(true, std::memory_order_relaxed)) return true;
  try {
    log_warn("a step has more than " + std::to_string(most_) + " " + things_ +
             "; the rest is left out. Does no watched optimizer step any more? Then watch() the one that "
             "does, or call step() at the end of each iteration");
  } catch (const std::exception&) {  // Out of memory: the limit holds without the line.
  }
  return true;
}

}  // namespace gradmon
