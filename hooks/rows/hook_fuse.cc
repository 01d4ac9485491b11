// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/hook_fuse.h"

#include "control/log.h"

namespace gradmon {

void HookFuse::trip(std::string_view target, std::string_view cause) noexcept {
  if (tripped_.exchange(true, std::memory_order_acq_rel)) return;
  try {
    const HookFailure failure{std::string(target), std::string(cause.substr(0, cause.find('\n')))};
    log_error("hooks are off until the next plan: " + failure.cause +
              (target.empty() ? std::string() : " (while reading " + failure.target + ")"));
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
