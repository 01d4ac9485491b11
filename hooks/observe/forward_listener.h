// SPDX-License-Identifier: Apache-2.0
// The probes' view (activations, attention, router logits, structure) of the forwards of watched modules,
// from observe(), a tap or Python's module hooks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>

#include "gradmon/forward_entry.h"

namespace gradmon {

// The number of a module's call within a graph of torch.compile: one number for its inputs, another for its
// outputs. The backward graph passes it along with the gradients.
using GraphCall = std::int64_t;
inline constexpr GraphCall kUnknownCall = 0;  // a graph whose forward ran while nothing was collected
inline constexpr GraphCall kEagerCall = -1;   // not within a graph

enum class GraphSide : bool { inputs, outputs };

// A call of a module at one position of a graph. The position numbers the hooks of one graph from 1.
struct GraphSite {
  const void* module = nullptr;
  std::int64_t position = 0;
};

// Receives the reports while armed. Implemented by ForwardTracker.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  virtual void entered(const void* module, ModuleMode mode, const ForwardTensors& inputs,
                       GraphCall call) noexcept = 0;
  virtual void left(const void* module, const ForwardTensors& outputs, GraphCall call) noexcept = 0;
  virtual void called_in_graph(const GraphSite& site, GraphCall call) noexcept = 0;
  // The call that a recomputation within a backward repeats; kUnknownCall without one.
  virtual GraphCall recomputed_in_graph(const GraphSite& site) noexcept = 0;
  virtual void gradients_in_graph(GraphCall call, GraphSide side,
                                  const ForwardTensors& gradients) noexcept = 0;
  virtual void abandoned(const void* module) noexcept = 0;
  virtual void tapped(std::string_view name, const at::Tensor& tensor) noexcept = 0;
  virtual void attended(const void* module, std::string_view name, const at::Tensor& q, const at::Tensor& k,
                        Causal causal) noexcept = 0;
};

namespace forward_entry {

// Reports of the operators in a graph. Any thread; `gradients`: the graph was traced with gradients enabled,
// while its kernels run without.
//
// call_in_graph(): before entered_in_graph() and before left_in_graph(), which get the number.
GraphCall call_in_graph(const GraphSite& site) noexcept;
void entered_in_graph(const void* module, ModuleMode mode, const ForwardTensors& inputs,
                      GraphCall call) noexcept;
void left_in_graph(const void* module, const ForwardTensors& outputs, GraphCall call) noexcept;
void gradients_in_graph(GraphCall call, GraphSide side, const ForwardTensors& gradients) noexcept;

// A call that is in progress may outlast disarm(); it keeps the observer alive until it returns.
void arm(std::shared_ptr<ForwardObserver> observer);
void disarm(const ForwardObserver& observer) noexcept;

}  // namespace forward_entry

struct ForwardVisit {
  std::size_t module = 0;   // index into WatchedModel::modules; or kNoModule
  int micro_step = 0;       // in this step, from 0
  int call = 1;             // of this module in this micro step, from 1; recomputations do not count
  bool recomputed = false;  // run again inside a backward, by checkpointing
  int vpp_stage = 0;        // of the module; with kNoModule, of the innermost module around (0: none)
  bool in_graph = false;    // within compiled code: the tensors have no autograd graph, and their memory is
                            // used again by later kernels
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
  // A backward graph has passed the gradients of the inputs or outputs of an earlier visit. Elements that
  // have none are missing.
  virtual void gradients_in_graph(const ForwardVisit& /*visit*/, GraphSide /*side*/,
                                  const ForwardTensors& /*gradients*/) {}
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
