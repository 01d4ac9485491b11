// SPDX-License-Identifier: Apache-2.0
// Sees the calls of torch's communication library, whoever makes them: the
// program in C++ or Python, DDP.
#pragma once

#include <memory>
#include <string_view>

#include "hooks/observe/collective_call.h"

namespace gradmon {

// On the thread that makes the call, several at a time. What it throws comes back
// to it as a failure.
class CollectiveListener {
 public:
  // One call between its two ends.
  class Visit {
   public:
    virtual ~Visit() = default;
    // The call has returned, its work may still be going on; null where the call
    // threw. Changes nothing in the work but for a callback on its future.
    virtual void launched(const c10::intrusive_ptr<c10d::Work>& work) = 0;
  };
  virtual ~CollectiveListener() = default;
  // The call is about to be made. Null: its end is of no interest.
  virtual std::unique_ptr<Visit> calling(CollectiveCall call) = 0;
  // A call could not be understood, and is not told of.
  virtual void failed(std::string_view cause) noexcept = 0;
};

// Training thread. While it lives every call in the process is told to the
// listener, and each small op of torch costs about 1 µs more (torch boxes its
// arguments for whoever observes). A call in flight at the end may still be
// told; it keeps the listener.
class CollectiveObserver {
 public:
  explicit CollectiveObserver(std::shared_ptr<CollectiveListener> listener);
  ~CollectiveObserver();
  CollectiveObserver(const CollectiveObserver&) = delete;
  CollectiveObserver& operator=(const CollectiveObserver&) = delete;

 private:
  const std::shared_ptr<CollectiveListener> listener_;
};

}  // namespace gradmon
