// SPDX-License-Identifier: Apache-2.0
// Call sites in a program without known source lines: the innermost watched module whose forward is
// running on the thread.
#pragma once

#include <vector>

#include "hooks/names/squash_name.h"
#include "hooks/names/watched_model.h"
#include "hooks/observe/call_site.h"
#include "hooks/observe/forward_listener.h"
#include "hooks/observe/forward_tracker.h"

namespace gradmon {

// Any thread. It is a listener only to make the HookSet create a ForwardTracker, which tracks the modules of
// each thread.
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

}  // namespace gradmon
