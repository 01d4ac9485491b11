// SPDX-License-Identifier: Apache-2.0
// The probes' view (activations, attention, router logits, structure) of the forwards of watched modules,
// from observe(), a tap or Python's module hooks.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>

#include "hooks/observe/forward_entry.h"

namespace gradmon {

struct ForwardVisit {
  std::size_t module = 0;   // index into WatchedModel::modules; or kNoModule
  int micro_step = 0;       // in this step, from 0
  int call = 1;             // of this module in this micro step, from 1; recomputations do not count
  bool recomputed = false;  // run again inside a backward, by checkpointing
  int vpp_stage = 0;        // of the module; with kNoModule, of the innermost module around (0: none)
};
inline constexpr std::size_t kNoModule = static_cast<std::size_t>(-1);

// Called only while armed, on the threads that run the forwards, possibly several at once. Only forwards
// in training mode with gradients enabled are shown, and recomputations. Each before_forward is followed
// by its after_forward on the same thread, with the same visit, unless the forward throws. Between the
// two come the calls for the inner modules. An exception of a listener trips the fuse.
class ForwardListener {
 public:
  virtual ~ForwardListener() = default;
  virtual void before_forward(const ForwardVisit& visit, const ForwardTensors& inputs) = 0;
  virtual void after_forward(const ForwardVisit& visit, const ForwardTensors& outputs) = 0;
  // The forward that began a micro step of its module's chunk threw. Discard everything seen of this
  // micro step in this chunk; the next forward begins the micro step again.
  virtual void abandoned(const ForwardVisit&) {}
  // gradmon::tap(). `within` has the innermost module around the call, or kNoModule. Its `call` counts
  // the calls with this name in this micro step.
  virtual void tapped(const ForwardVisit& /*within*/, std::string_view /*name*/, const at::Tensor&) {}
  // gradmon::attention(). `visit` has the module that the program passed, or kNoModule if it passed a
  // name, and the chunk of the innermost module around the call. Its `call` counts the calls with this module
  // or name in this micro step.
  virtual void attended(const ForwardVisit& /*visit*/, std::string_view /*name*/, const at::Tensor& /*q*/,
                        const at::Tensor& /*k*/, Causal) {}
};

// Passes data of a listener from before_forward to the matching after_forward. Any thread. The entry of a
// forward that throws stays until clear().
template <typename Call>
class OngoingForwards {
 public:
  void begin(const ForwardVisit& visit, Call call) {
    const std::lock_guard lock(mutex_);
    calls_.insert_or_assign(key_of(visit), std::move(call));
  }

  // Removes and returns the data of the matching begin() on this thread; empty without a match.
  std::optional<Call> end(const ForwardVisit& visit) {
    const std::lock_guard lock(mutex_);
    auto call = calls_.extract(key_of(visit));
    if (call.empty()) return std::nullopt;
    return std::move(call.mapped());
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    calls_.clear();
  }

 private:
  using Key = std::tuple<std::thread::id, std::size_t, int, int, bool>;

  static Key key_of(const ForwardVisit& visit) {
    return {std::this_thread::get_id(), visit.module, visit.micro_step, visit.call, visit.recomputed};
  }

  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<Key, Call> calls_;
};

}  // namespace gradmon
