// SPDX-License-Identifier: Apache-2.0
// Call sites in a program without lines that could be told: the innermost
// watched module whose forward the thread is in.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "hooks/call_site.h"
#include "hooks/forward_listener.h"
#include "hooks/watched_model.h"

namespace gradmon {

// Any thread.
class NativeCallSites : public ForwardListener {
 public:
  explicit NativeCallSites(const std::vector<WatchedModule>& modules);

  // "native[layers.0]" with the modules around it as frames; "native" outside
  // of all, and inside the root alone.
  CallSite here() const;
  // Forgets forwards that an exception has left.
  void clear();

  void before_forward(const ForwardVisit& visit, const ForwardTensors& inputs) override;
  void after_forward(const ForwardVisit& visit, const ForwardTensors& outputs) override;

 private:
  struct Name {
    std::string path;
    int vpp_stage;
  };
  const std::vector<Name> names_;

  mutable std::mutex mutex_;
  // Guarded by mutex_: the modules each thread is in, outermost first.
  std::map<std::thread::id, std::vector<std::size_t>> inside_;
};

}  // namespace gradmon
