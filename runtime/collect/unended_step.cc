// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/unended_step.h"

#include <algorithm>

namespace gradmon {

std::string UnendedStep::sentence(const std::string& since) const {
  return "rank " + std::to_string(rank_.value) + ": no step has ended " + since +
         "; if training runs, its step is captured: call monitor.step()";
}

const std::string& UnendedStep::look(const Seen& seen, Time now) {
  if (!looked_ || seen.current != current_) {
    looked_ = true;
    current_ = seen.current;
    moved_ = now;
    pending_ = false;
    found_.clear();
  }
  if (seen.switch_pending && !pending_) pending_since_ = now;
  pending_ = seen.switch_pending;
  if (!found_.empty()) return found_;
  if (seen.passes >= most_passes_) {
    found_ = sentence("for " + std::to_string(seen.passes) + " passes");
  } else if (pending_ && now - std::max(moved_, pending_since_) >= kPending) {
    found_ = sentence("for " + std::to_string(kPending.count()) + " s");
  } else if (seen.collecting && seen.evaluations == 0 && now - moved_ >= kCollecting) {
    found_ = sentence("for " + std::to_string(kCollecting.count()) + " min");
  }
  return found_;
}

}  // namespace gradmon
