// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/hook_fuse.h"

#include "control/log.h"

namespace gradmon {

std::string first_line(std::string_view text) {
  const std::string line(text.substr(0, text.find('\n')));
  return line.empty() ? "an exception without a message" : line;
}

void HookFuse::trip(std::string_view target, std::string_view cause) noexcept {
  if (tripped_.exchange(true, std::memory_order_acq_rel)) return;
  try {
    const HookFailure failure{std::string(target), first_line(cause)};
    log_error("hook failed: " + failure.cause +
              (target.empty() ? std::string() : " (while reading " + failure.target + ")") +
              "; hooks stay off until the next plan");
    const std::lock_guard lock(mutex_);
    failure_ = failure;
  } catch (...) {  // Out of memory: the fuse stays tripped, its failure is not recorded.
  }
}

std::optional<HookFailure> HookFuse::failure() const {
  if (!tripped()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return failure_.value_or(HookFailure{});
}

}  // namespace gradmon
