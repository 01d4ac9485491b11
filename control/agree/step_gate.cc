// SPDX-License-Identifier: Apache-2.0
#include "control/agree/step_gate.h"

#include <algorithm>
#include <utility>

#include "control/agree/mutant.h"

namespace gradmon {
namespace {

Step least(Step a, Step b) { return a < b ? a : b; }

}  // namespace

void StepGate::publish() {
  Step first = fence_;
  if (!ahead_.empty()) first = least(first, ahead_.front().effective);
  if (!end_said_) first = least(first, schedule_.next_change(handled_ + 1));
  gate_.store(first.value);
}

Step StepGate::begun() const {
  const Step now{current_.load()};
  const bool fast_path_open = now.value < gate_.load();
  return fast_path_open || now <= handled_ ? now : Step{now.value - 1};
}

Opening StepGate::begin(Step n) {
  const std::lock_guard lock(mutex_);
  if (n >= fence_) return {true, {}, false, false};
  Opening opening;
  while (!ahead_.empty() && ahead_.front().effective <= n) {
    in_force_ = std::move(ahead_.front());
    ahead_.pop_front();
    schedule_ = schedule_of(*in_force_->plan, in_force_->effective);
    end_said_ = !in_force_->plan->on;
    applied_.emplace_back(in_force_->revision, n);
    opening.swap = in_force_;
  }
  opening.collect = schedule_.collects(n);
  if (!end_said_ && n >= schedule_.end()) {
    end_said_ = true;
    opening.ended = true;
  }
  handled_ = n;
  publish();
  return opening;
}

Step StepGate::promise(std::int64_t lookahead) {
  const std::lock_guard lock(mutex_);
  Step now{current_.load()};
  do {
    let_other_thread_run();
    fence_ = now + std::max<std::int64_t>(lookahead, 1);
    publish();
    now = Step{current_.load()};
  } while (now >= fence_ && !mutated(Mutant::no_second_look));
  return fence_;
}

void StepGate::hold(Step fence) {
  const std::lock_guard lock(mutex_);
  if (!abandoned_) fence_ = fence;
  publish();
}

void StepGate::release() { settle({}); }

void StepGate::abandon() {
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
    fence_ = kNever;
    publish();
  }
  changed_.notify_all();
}

void StepGate::withdraw() {
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
    fence_ = kNever;
    ahead_.clear();
    if (in_force_ && in_force_->plan->on)
      ahead_.push_back({in_force_->revision, std::make_shared<const Plan>(), handled_ + 1});
    publish();
  }
  changed_.notify_all();
}

bool StepGate::enters_in_time(Step effective) {
  if (effective >= fence_) return effective > begun();
  // No promise keeps the trainer from it: promise it, and look again.
  let_other_thread_run();
  fence_ = effective;
  publish();
  return mutated(Mutant::no_second_look) || Step{current_.load()} < effective;
}

bool StepGate::settle(const std::optional<Commitment>& commitment, Step fence) {
  bool in_time = true;
  {
    const std::lock_guard lock(mutex_);
    if (commitment) {
      in_time = enters_in_time(commitment->effective);
      if (in_time) ahead_.push_back(*commitment);
    }
    fence_ = fence;
    publish();
  }
  changed_.notify_all();
  return in_time;
}

std::vector<std::pair<Revision, Step>> StepGate::take_applied() {
  const std::lock_guard lock(mutex_);
  return std::exchange(applied_, {});
}

std::optional<Commitment> StepGate::in_force() const {
  const std::lock_guard lock(mutex_);
  return in_force_;
}

}  // namespace gradmon
