// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/forward_tracker.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "hooks/observe/graph_node.h"
#include "hooks/observe/hook_gate.h"

namespace gradmon {
namespace {

// More forwards in one step are calls of the last micro step, so that memory is bounded if no step ends.
constexpr int kMostMicroSteps = 1 << 16;

// A watched module whose forward is running on this thread.
struct Frame {
  std::uint64_t tracker = 0;       // number of the tracker that made the frame
  std::uint64_t step = 0;          // number of the step, from the tracker's gate
  const void* identity = nullptr;  // of the module
  bool visited = false;            // false: the modules within are not visited either
  ForwardVisit visit;
};

thread_local std::vector<Frame> frames;

// Identifies a tracker. Unlike an address, a number is never reused.
std::uint64_t next_number() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

const Frame* innermost(std::uint64_t tracker) {
  const auto found =
      std::find_if(frames.rbegin(), frames.rend(), [&](const Frame& f) { return f.tracker == tracker; });
  return found == frames.rend() ? nullptr : &*found;
}

template <typename Condition>
void drop(std::size_t from, Condition&& condition) {
  const auto first = frames.begin() + static_cast<std::ptrdiff_t>(from);
  frames.erase(std::remove_if(first, frames.end(), condition), frames.end());
}

MicroStepCounter::Gradients gradients_now() {
  return c10::GradMode::is_enabled() ? MicroStepCounter::Gradients::enabled
                                     : MicroStepCounter::Gradients::disabled;
}

}  // namespace

MicroStepCounter::MicroStepCounter(const std::vector<WatchedModule>& modules, int grad_acc_steps)
    : grad_acc_steps_(std::max(1, grad_acc_steps)), calls_(modules.size()) {
  for (const WatchedModule& module : modules) {
    stages_.push_back(module.vpp_stage);
    roots_.push_back(module.name.empty());
  }
}

void MicroStepCounter::begin_step() {
  chunks_.clear();
  tapped_.clear();
  std::fill(calls_.begin(), calls_.end(), Calls{});
}

MicroStepCounter::Place MicroStepCounter::outermost(std::size_t module, Gradients gradients) {
  Chunk& chunk = chunks_[stages_[module]];
  if (roots_[module]) {
    const bool taken_over = !chunk.root_leads && chunk.micro_steps > 0;
    chunk.root_leads = true;
    if (!taken_over) chunk.micro_steps = std::min(chunk.micro_steps + 1, kMostMicroSteps);
  } else if (!chunk.root_leads) {
    if (chunk.micro_steps == 0) chunk.leader = module;
    if (chunk.leader == module) chunk.micro_steps = std::min(chunk.micro_steps + 1, grad_acc_steps_);
  }
  return within(module, std::max(0, chunk.micro_steps - 1), gradients);
}

MicroStepCounter::Place MicroStepCounter::within(std::size_t module, int micro_step, Gradients gradients) {
  return next(calls_[module], micro_step, gradients);
}

std::optional<MicroStepCounter::Place> MicroStepCounter::recomputed(std::size_t module) {
  return next_recomputed(calls_[module], micro_step(stages_[module]));
}

MicroStepCounter::Place MicroStepCounter::tapped(int vpp_stage, const std::string& name, int micro_step,
                                                 Gradients gradients) {
  return next(tapped_[{vpp_stage, name}], micro_step, gradients);
}

std::optional<MicroStepCounter::Place> MicroStepCounter::tapped_again(int vpp_stage, const std::string& name,
                                                                      int micro_step) {
  return next_recomputed(tapped_[{vpp_stage, name}], micro_step);
}

bool MicroStepCounter::retract(std::size_t module, const Place& place) {
  const int stage = stages_[module];
  Chunk& chunk = chunks_[stage];
  const bool leads = chunk.root_leads ? roots_[module] : chunk.leader == module;
  if (!leads || place.call != 1 || chunk.micro_steps != place.micro_step + 1) return false;
  --chunk.micro_steps;
  const auto forget = [&](Calls& calls) {
    const auto index = static_cast<std::size_t>(place.micro_step);
    if (index < calls.forward.size()) calls.forward[index] = 0;
    auto& places = calls.without_gradients;
    const auto kept = std::remove_if(places.begin(), places.end(), [&](const Place& other) {
      return other.micro_step == place.micro_step;
    });
    places.erase(kept, places.end());
  };
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    if (stages_[i] == stage) forget(calls_[i]);
  }
  for (auto& [name, calls] : tapped_) {
    if (name.first == stage) forget(calls);
  }
  return true;
}

int MicroStepCounter::micro_step(int vpp_stage) const {
  const auto chunk = chunks_.find(vpp_stage);
  return chunk == chunks_.end() ? 0 : std::max(0, chunk->second.micro_steps - 1);
}

MicroStepCounter::Place MicroStepCounter::next(Calls& calls, int micro_step, Gradients gradients) {
  const auto index = static_cast<std::size_t>(micro_step);
  if (calls.forward.size() <= index) calls.forward.resize(index + 1, 0);
  const Place place{micro_step, ++calls.forward[index]};
  if (gradients == Gradients::disabled && calls.without_gradients.size() < kMostMicroSteps)
    calls.without_gradients.push_back(place);
  return place;
}

// If no forward was seen, the recomputation counts as a forward of micro step `otherwise`.
std::optional<MicroStepCounter::Place> MicroStepCounter::next_recomputed(Calls& calls, int otherwise) {
  if (calls.forward.empty()) return Place{otherwise, static_cast<int>(++calls.recomputed)};
  if (calls.recomputed >= calls.without_gradients.size()) return std::nullopt;
  return calls.without_gradients[calls.recomputed++];
}

class ForwardTracker::Observer : public ForwardObserver {
 public:
  Observer(const std::vector<WatchedModule>& modules, int grad_acc_steps,
           std::vector<ForwardListener*> listeners, HookFuse& fuse, std::shared_ptr<TrainingPasses> passes)
      : modules_(modules),
        module_indices_(module_indices(modules)),
        listeners_(std::move(listeners)),
        fuse_(fuse),
        passes_(std::move(passes)),
        counter_(modules, grad_acc_steps) {}

  void begin_step() {
    gate_.close();
    counter_.begin_step();
    graph_visits_.clear();
    graph_sites_.clear();
    gate_.open();
  }

  void disarm() noexcept { gate_.close(); }

  void entered(const void* module, ModuleMode mode, const ForwardTensors& inputs,
               GraphCall call) noexcept override {
    of_module(module, [&](std::size_t place, std::uint64_t step) {
      // Checkpointing may end a recomputation early by an exception, which leaves its frames behind.
      const bool forward = !within_backward();
      drop(0, [&](const Frame& f) {
        return f.tracker == number_ && (f.step != step || (forward && f.visit.recomputed));
      });
      if (modules_[place].name.empty()) {
        retract(pop(module), step);
        if (forward) drop_of_model(modules_[place].vpp_stage);
        if (forward) count_pass(modules_[place], mode);
      }
      Frame frame = frame_of(place, mode, step);
      frame.visit.in_graph = call != kEagerCall;
      frames.push_back(frame);
      if (!frame.visited) return;
      note_graph_visit(call, frame.visit);
      for (ForwardListener* listener : listeners_) listener->before_forward(frame.visit, inputs);
    });
  }

  void left(const void* module, const ForwardTensors& outputs, GraphCall call) noexcept override {
    const auto frame = pop(module);
    if (!frame || !frame->visited) return;
    of_module(module, [&](std::size_t, std::uint64_t step) {
      if (frame->step != step) return;
      note_graph_visit(call, frame->visit);
      for (ForwardListener* listener : listeners_) listener->after_forward(frame->visit, outputs);
    });
  }

  void called_in_graph(const GraphSite& site, GraphCall call) noexcept override {
    of_module(site.module, [&](std::size_t place, std::uint64_t) {
      const std::lock_guard lock(mutex_);
      auto& calls = graph_sites_[{place, site.position}].calls;
      if (calls.size() < kMostMicroSteps) calls.push_back(call);
    });
  }

  GraphCall recomputed_in_graph(const GraphSite& site) noexcept override {
    GraphCall call = kUnknownCall;
    of_module(site.module, [&](std::size_t place, std::uint64_t) {
      const std::lock_guard lock(mutex_);
      SiteCalls& known = graph_sites_[{place, site.position}];
      if (known.recomputed < known.calls.size()) call = known.calls[known.recomputed++];
    });
    return call;
  }

  void gradients_in_graph(GraphCall call, GraphSide side, const ForwardTensors& gradients) noexcept override {
    during_step("gradients within compiled code", [&](std::uint64_t) {
      std::optional<ForwardVisit> visit;
      {
        const std::lock_guard lock(mutex_);
        if (const auto known = graph_visits_.find(call); known != graph_visits_.end()) visit = known->second;
      }
      if (!visit) return;
      for (ForwardListener* listener : listeners_) listener->gradients_in_graph(*visit, side, gradients);
    });
  }

  void abandoned(const void* module) noexcept override {
    const auto frame = pop(module);
    of_module(module, [&](std::size_t, std::uint64_t step) { retract(frame, step); });
  }

  void tapped(std::string_view name, const at::Tensor& tensor) noexcept override {
    during_step(name, [&](std::uint64_t step) {
      const Frame* around = innermost(number_);
      if (around && around->step != step) around = nullptr;
      if (around ? !around->visited : !c10::GradMode::is_enabled()) return;
      const auto visit = visit_of(std::string(name), around);
      if (!visit) return;
      for (ForwardListener* listener : listeners_) listener->tapped(*visit, name, tensor);
    });
  }

  void attended(const void* module, std::string_view name, const at::Tensor& q, const at::Tensor& k,
                Causal causal) noexcept override {
    const auto place = module_indices_.find(module);
    if (module && place == module_indices_.end()) return;
    during_step(module ? modules_[place->second].name : name, [&](std::uint64_t step) {
      const Frame* around = innermost(number_);
      if (around && around->step != step) around = nullptr;
      if (around ? !around->visited : !c10::GradMode::is_enabled()) return;
      // The prefix separates these keys from the names of tapped values.
      const std::string key = module ? std::to_string(place->second) : std::string(name);
      auto visit = visit_of((module ? "attention of module " : "attention ") + key, around);
      if (!visit) return;
      visit->module = module ? place->second : kNoModule;
      for (ForwardListener* listener : listeners_) listener->attended(*visit, name, q, k, causal);
    });
  }

 private:
  // The calls of one module at one position of a graph, in their order in the step.
  struct SiteCalls {
    std::vector<GraphCall> calls;
    std::size_t recomputed = 0;  // number of `calls` that a backward has recomputed
  };

  // A recomputation keeps the visit of the call that it repeats.
  void note_graph_visit(GraphCall call, const ForwardVisit& visit) {
    if (call == kEagerCall || call == kUnknownCall) return;
    const std::lock_guard lock(mutex_);
    graph_visits_.emplace(call, visit);
  }

  void count_pass(const WatchedModule& root, ModuleMode mode) noexcept {
    if (!passes_ || root.vpp_stage != 0) return;
    const bool training = mode == ModuleMode::training && c10::GradMode::is_enabled();
    passes_->forward(training ? TrainingPasses::Forward::training : TrainingPasses::Forward::evaluation);
  }

  // Drops frames of modules that were called directly and threw: a model does not run within its own modules.
  void drop_of_model(int vpp_stage) {
    drop(0, [&](const Frame& f) { return f.tracker == number_ && f.visit.vpp_stage == vpp_stage; });
  }

  template <typename Body>
  void of_module(const void* module, Body&& body) noexcept {
    const auto place = module_indices_.find(module);
    if (place == module_indices_.end()) return;
    during_step(modules_[place->second].name, [&](std::uint64_t step) { body(place->second, step); });
  }

  template <typename Body>
  void during_step(std::string_view name, Body&& body) noexcept {
    gate_.enter([&](std::uint64_t step) {
      if (!fuse_.tripped()) fuse_.guard(name, [&] { body(step); });
    });
  }

  Frame frame_of(std::size_t place, ModuleMode mode, std::uint64_t step) {
    const Frame* around = innermost(number_);
    Frame frame{number_, step, modules_[place].identity, false, {}};
    frame.visit.module = place;
    frame.visit.vpp_stage = modules_[place].vpp_stage;
    frame.visit.recomputed = within_backward();
    frame.visited = mode == ModuleMode::training &&
                    (around && !frame.visit.recomputed ? around->visited : c10::GradMode::is_enabled());
    if (!frame.visited) return frame;
    const std::lock_guard lock(mutex_);
    const auto counted = frame.visit.recomputed ? counter_.recomputed(place)
                         : around ? counter_.within(place, around->visit.micro_step, gradients_now())
                                  : counter_.outermost(place, gradients_now());
    frame.visited = counted.has_value();
    if (!counted) return frame;
    frame.visit.micro_step = counted->micro_step;
    frame.visit.call = counted->call;
    return frame;
  }

  // Call it after the frame of a forward that threw has been removed.
  void retract(const std::optional<Frame>& frame, std::uint64_t step) {
    if (!frame || !frame->visited || frame->visit.recomputed || frame->step != step) return;
    if (innermost(number_)) return;
    {
      const std::lock_guard lock(mutex_);
      if (!counter_.retract(frame->visit.module, {frame->visit.micro_step, frame->visit.call})) return;
    }
    for (ForwardListener* listener : listeners_) listener->abandoned(frame->visit);
  }

  // Empty within a recomputation whose graph is never run.
  std::optional<ForwardVisit> visit_of(const std::string& tapped, const Frame* around) {
    ForwardVisit visit;
    visit.module = around ? around->visit.module : kNoModule;
    visit.recomputed = within_backward();
    const std::lock_guard lock(mutex_);
    visit.vpp_stage = around ? around->visit.vpp_stage : 0;
    const int micro_step = around ? around->visit.micro_step : counter_.micro_step(0);
    const auto counted = visit.recomputed
                             ? counter_.tapped_again(visit.vpp_stage, tapped, micro_step)
                             : counter_.tapped(visit.vpp_stage, tapped, micro_step, gradients_now());
    if (!counted) return std::nullopt;
    visit.micro_step = counted->micro_step;
    visit.call = counted->call;
    return visit;
  }

  // Removes and returns the innermost frame of the module. Also removes the frames within it, which
  // exceptions have left behind. Ignores gate and fuse, so that no frame outlives its forward.
  std::optional<Frame> pop(const void* module) noexcept {
    const auto place = module_indices_.find(module);
    if (place == module_indices_.end()) return std::nullopt;
    for (std::size_t i = frames.size(); i-- > 0;) {
      const Frame frame = frames[i];
      if (frame.tracker != number_ || frame.visit.module != place->second) continue;
      drop(i, [&](const Frame& f) { return f.tracker == number_; });
      return frame;
    }
    return std::nullopt;
  }

  // Constant after construction.
  const std::uint64_t number_ = next_number();
  const std::vector<WatchedModule> modules_;
  const ModuleIndices module_indices_;
  const std::vector<ForwardListener*> listeners_;
  HookFuse& fuse_;                                // valid within the gate; may be destroyed otherwise
  const std::shared_ptr<TrainingPasses> passes_;  // null: not counted

  HookGate gate_;  // own synchronisation

  std::mutex mutex_;
  // Guarded by mutex_ while the gate is open.
  MicroStepCounter counter_;
  std::unordered_map<GraphCall, ForwardVisit> graph_visits_;
  std::map<std::pair<std::size_t, std::int64_t>, SiteCalls> graph_sites_;  // by module and position
};

ForwardTracker::ForwardTracker(const std::vector<WatchedModule>& modules, int grad_acc_steps,
                               std::vector<ForwardListener*> listeners, HookFuse& fuse,
                               std::shared_ptr<TrainingPasses> passes)
    : observer_(std::make_shared<Observer>(modules, grad_acc_steps, std::move(listeners), fuse,
                                           std::move(passes))) {}

ForwardTracker::~ForwardTracker() { disarm(); }

void ForwardTracker::begin_step() {
  observer_->begin_step();
  forward_entry::arm(observer_);
}

void ForwardTracker::disarm() noexcept {
  forward_entry::disarm(*observer_);
  observer_->disarm();
}

ModuleIndices module_indices(const std::vector<WatchedModule>& modules) {
  ModuleIndices indices;
  for (std::size_t i = 0; i < modules.size(); ++i) indices.emplace(modules[i].identity, i);
  return indices;
}

// If several trackers watch a module, each has a frame of the same call: the first is enough.
std::vector<std::size_t> modules_around(const ModuleIndices& modules) {
  std::vector<std::size_t> around;
  const Frame* last = nullptr;
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    const auto module = modules.find(frame->identity);
    const bool same_call = last && last->identity == frame->identity && last->tracker != frame->tracker;
    if (module == modules.end() || same_call) continue;
    last = &*frame;
    around.push_back(module->second);
  }
  return around;
}

}  // namespace gradmon
