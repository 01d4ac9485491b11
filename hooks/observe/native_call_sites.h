// SPDX-License-Identifier: Apache-2.0
// Call sites in a program without lines that could be told: the innermost
// watched module whose forward the thread is in.
#pragma once

#include <string>
#include <vector>

#include "hooks/observe/call_site.h"
#include "hooks/observe/forward_listener.h"
#include "hooks/names/watched_model.h"

namespace gradmon {

// Any thread. Listens so that there is a tap, which knows the modules around a
// thread; where several models are watched, those of the innermost one are named.
class NativeCallSites : public ForwardListener {
 public:
  explicit NativeCallSites(const std::vector<WatchedModule>& modules);

  // "native[layers.0]" with the modules around it as frames; "native" outside
  // of all, and inside the root alone.
  CallSite here() const;

  void before_forward(const ForwardVisit&, const ForwardTensors&) override {}
  void after_forward(const ForwardVisit&, const ForwardTensors&) override {}

 private:
  struct Name {
    std::string path;
    int vpp_stage;
  };
  const std::vector<Name> names_;
};

}  // namespace gradmon
