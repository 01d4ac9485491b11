// SPDX-License-Identifier: Apache-2.0
// Observes all calls of torch's communication library (c10d) and symmetric memory, made by the program in C++
// or Python or by DDP.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "hooks/observe/collective_call.h"

namespace gradmon {

// The end of coalesced calls. none: the calls have no work; the current stream runs the synchronous ones.
// waited_for: the program has waited for the work of all calls. dropped: the program has dropped the work, so
// the calls cannot be read.
enum class CoalescedWork : std::uint8_t { none, waited_for, dropped };

// Called on the thread that makes the collective call, possibly on several threads at once. An exception
// is passed to on_failure().
class CollectiveListener {
 public:
  // A call that has begun and not returned.
  class CallScope {
   public:
    virtual ~CallScope() = default;
    // Called before on_return() if the call returns an output (CollectiveCall::returns_output).
    virtual void on_output(const at::Tensor& /* output */) {}
    // The call has returned; its work may still be in progress. `work` is null if the call has none: see
    // CollectiveCall::synchronous. May add a callback to the future of the work, and must not change the work
    // otherwise.
    virtual void on_return(const c10::intrusive_ptr<c10d::Work>& work) = 0;
    virtual void on_throw() = 0;
  };
  virtual ~CollectiveListener() = default;
  // Before the call. Null: the listener does not want to know when the call returns.
  virtual std::unique_ptr<CallScope> on_call(CollectiveCall call) = 0;
  // The calls with this number (CollectiveCall::coalesced) can be read on the current stream, or never.
  virtual void on_coalesced(std::uint64_t number, CoalescedWork work) = 0;
  // True if the program has not waited for some asynchronous call on a device.
  virtual bool has_unwaited_calls() const = 0;
  // The program has waited for the call with this future, or for the functional calls whose outputs have this
  // storage: the current stream follows them.
  virtual void on_waited(const c10::ivalue::Future& future) = 0;
  virtual void on_waited(const at::Tensor& output) = 0;
  // The program has the future of a call, and may add callbacks.
  virtual void on_future_taken(const c10::ivalue::Future& future) = 0;
  // Some communication has no rows: `sentence` says which, and why.
  virtual void on_unread(const std::string& /* sentence */) {}
  // The arguments of a call could not be read, or a listener threw. Some listeners may miss this call.
  virtual void on_failure(std::string_view cause) noexcept = 0;
};

// Training thread. While an instance exists, its listener gets every call in the process, and each small
// torch op costs about 1 µs more, because torch boxes the arguments for observers. A call in progress at
// the destruction may still reach the listener and keeps it alive.
class CollectiveObserver {
 public:
  explicit CollectiveObserver(std::shared_ptr<CollectiveListener> listener);
  ~CollectiveObserver();
  CollectiveObserver(const CollectiveObserver&) = delete;
  CollectiveObserver& operator=(const CollectiveObserver&) = delete;

 private:
  const std::shared_ptr<CollectiveListener> listener_;
};

// True if an observer exists. Any thread.
bool collectives_are_observed() noexcept;

// Call begin after ProcessGroup::startCoalescing() and end before endCoalescing() (NCCL), because c10d's
// operators report neither. This thread's calls in between, except on the CPU, are sent at the end. Both
// return the number of those calls; 0: nothing has begun. Not nested: a second beginning ends the first.
std::uint64_t begin_coalescing() noexcept;
std::uint64_t end_coalescing() noexcept;
std::uint64_t coalescings() noexcept;  // the last number of the process
// Any thread. Unless the work is dropped, the current stream follows those calls.
void coalesced_calls_are_over(std::uint64_t number, CoalescedWork work) noexcept;

// The first asks all listeners for has_unwaited_calls(), the others call all listeners. Any thread.
bool calls_are_unwaited() noexcept;
void call_is_waited_for(const c10::ivalue::Future& future) noexcept;
void future_is_taken(const c10::ivalue::Future& future) noexcept;
void communication_is_unread(const std::string& sentence) noexcept;

}  // namespace gradmon
