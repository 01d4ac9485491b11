// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "control/aliases.h"
#include "control/signals_blocked.h"

namespace gradmon {

// Runs a call that may hang on a detached thread, one call at a time. The thread may outlive this object;
// it ends when the call returns. One thread owns this object; no member function blocks.
template <class Answer>
class BackgroundCall {
 public:
  using Outcome = Result<Answer>;

  bool under_way() const { return call_ != nullptr; }
  // Call it only while no call is under way. An exception of `work` or a failure to start the thread becomes
  // an error.
  void begin(std::function<Outcome()> work) {
    call_ = std::make_shared<Call>();
    try {
      const SignalsBlocked blocked;
      std::thread([call = call_, work = std::move(work)] {
        pthread_setname_np(pthread_self(), "gradmon-call");
        try {
          call->outcome = work();
        } catch (const std::exception& error) {
          call->outcome = tl::unexpected(std::string(error.what()));
        } catch (...) {
          call->outcome = tl::unexpected(std::string("unknown exception"));
        }
        call->done.store(true, std::memory_order_release);
      }).detach();
    } catch (const std::exception& error) {  // no thread or no memory is free
      call_->outcome = tl::unexpected(std::string("cannot start a thread: ") + error.what());
      call_->done = true;
    }
  }
  // Returns the outcome once, after the call has ended; else nullopt.
  std::optional<Outcome> poll() {
    if (!call_ || !call_->done.load(std::memory_order_acquire)) return std::nullopt;
    return std::exchange(call_, nullptr)->outcome;
  }

 private:
  // Shared with the call's thread, which writes `outcome` before it sets `done`.
  struct Call {
    Outcome outcome = tl::unexpected(std::string());
    std::atomic<bool> done{false};
  };
  std::shared_ptr<Call> call_;  // null: none is under way
};

}  // namespace gradmon
