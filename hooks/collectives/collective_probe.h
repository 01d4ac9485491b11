// SPDX-License-Identifier: Apache-2.0
// Communication: what goes into and comes out of collective calls, for each
// call site (cc_distribution).
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "hooks/observe/call_site.h"
#include "hooks/collectives/collective_observer.h"
#include "hooks/observe/native_call_sites.h"
#include "hooks/rows/probe.h"

namespace gradmon {

class CollectiveReadings;
struct CollectiveSettings;

// Rows of Kind::other, one for each call site, direction and place in the list
// of tensors, in order of first arrival, several calls folded. A work that
// completes after its step has no row in any step: it is counted. With log_only
// there are no rows: each sort of call is logged once, at the end of the step
// that made it. Observes in collected steps alone.
class CollectiveProbe : public Probe {
 public:
  // Where `stack` is null or has no frames, the watched module is told that the call
  // is made in. `stream` and `fuse` outlive this.
  CollectiveProbe(const CollectiveSettings& settings, double eps, const std::vector<WatchedModule>& modules,
                  StackSource stack, RecordStream& stream, HookFuse& fuse);
  ~CollectiveProbe() override;

  void begin_step(Step step) override;
  void disarm() noexcept override;
  void write_rows(RowWriter& rows) override;
  std::size_t attached() const noexcept override { return observer_ ? 1 : 0; }
  ForwardListener* forward_listener() noexcept override { return needs_tap_ ? native_.get() : nullptr; }

 private:
  const std::shared_ptr<NativeCallSites> native_;
  const bool needs_tap_;  // to know in which module, or in which of several models
  const std::shared_ptr<CollectiveReadings> readings_;
  RecordStream& stream_;
  HookFuse& fuse_;
  std::chrono::nanoseconds charged_{};          // of what the readings have spent
  std::optional<CollectiveObserver> observer_;  // Keep last.
};

}  // namespace gradmon
