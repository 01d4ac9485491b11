// SPDX-License-Identifier: Apache-2.0
// The inputs and outputs of collective calls, by call site (cc_distribution).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "hooks/collectives/collective_observer.h"
#include "hooks/names/squash_name.h"
#include "hooks/names/watched_model.h"
#include "hooks/observe/call_site.h"
#include "hooks/observe/forward_listener.h"
#include "hooks/observe/forward_tracker.h"
#include "hooks/rows/probe.h"

namespace gradmon {

class CollectiveReadings;
struct CollectiveSettings;

// Call sites in a program without known source lines: the innermost watched module whose forward is running
// on the thread. Any thread. It is a listener only to make the HookSet create a ForwardTracker, which tracks
// the modules of each thread.
class NativeCallSites : public ForwardListener {
 public:
  explicit NativeCallSites(const std::vector<WatchedModule>& modules);

  // "native[layers.0]", with this module and the modules around it as frames. "native" outside of all
  // modules, and inside the root only.
  CallSite here() const;

  void before_forward(const ForwardVisit&, const ForwardTensors&) override {}
  void after_forward(const ForwardVisit&, const ForwardTensors&) override {}

 private:
  const std::vector<TargetName> names_;
  const ModuleIndices indices_;
};

// Writes rows of Kind::other: one for each call site, direction and index in the list of tensors, in order
// of first arrival. Several calls are folded into one row. Work that completes after its step has no row
// in any step and is counted as not applicable. With log_only there are no rows; each different call is
// logged once, at the end of its step. Observes collected steps only.
class CollectiveProbe : public Probe {
 public:
  // If `stack` is null or returns no frames, the call site is the watched module around the call.
  // `stream` and `fuse` must outlive this.
  CollectiveProbe(const CollectiveSettings& settings, double eps, const std::vector<WatchedModule>& modules,
                  StackSource stack, RecordStream& stream, HookFuse& fuse);
  ~CollectiveProbe() override;

  void begin_step(Step step) override;
  void disarm() noexcept override;
  void write_rows(RowWriter& rows) override;
  ForwardListener* forward_listener() noexcept override { return needs_tracker_ ? native_.get() : nullptr; }

 private:
  const std::shared_ptr<NativeCallSites> native_;
  const bool needs_tracker_;  // to find the module around a call, or its model chunk
  const std::shared_ptr<CollectiveReadings> readings_;
  RecordStream& stream_;
  HookFuse& fuse_;
  std::chrono::nanoseconds charged_{};          // part of readings_->hook_time() already charged to fuse_
  std::optional<CollectiveObserver> observer_;  // Keep last.
};

}  // namespace gradmon
