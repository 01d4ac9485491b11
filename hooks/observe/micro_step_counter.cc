// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/micro_step_counter.h"

#include <algorithm>

namespace gradmon {
namespace {

// More forwards in one step are calls of the last micro step, so that memory is bounded if no step ends.
constexpr int kMostMicroSteps = 1 << 16;

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

}  // namespace gradmon
