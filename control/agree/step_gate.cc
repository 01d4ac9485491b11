// SPDX-License-Identifier: Apache-2.0
#include "control/agree/step_gate.h"

#include <algorithm>

#include "control/agree/mutant.h"

namespace gradmon {
namespace {

constexpr Ticks kWaitsKept{600'000};

}  // namespace

class StepGate::Entered {
 public:
  explicit Entered(const StepGate& gate) : gate_(gate) { gate_.lock(); }
  ~Entered() { gate_.unlock(); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  const StepGate& gate_;
};

void StepGate::publish() {
  Step first = fence_;
  if (!ahead_.empty()) first = std::min(first, ahead_.front().effective);
  if (!end_reported_) first = std::min(first, schedule_.next_change(handled_ + 1));
  gate_.store(first.value);
}

Step StepGate::begun() const {
  const Step now{current_.load()};
  const bool fast_path_open = now.value < gate_.load();
  return fast_path_open || now <= handled_ ? now : Step{now.value - 1};
}

bool StepGate::must_wait() const {
  if (!end_reported_ && in_force_ && in_force_->plan->on) return true;
  return std::any_of(ahead_.begin(), ahead_.end(), [](const Commitment& each) { return each.plan->on; });
}

void StepGate::end_wait(Ticks now) {
  if (!waiting_since_) return;
  if (!held_from_start_) waits_.push_back({now, std::min(now - *waiting_since_, max_wait_)});
  waiting_since_.reset();
  while (!waits_.empty() && now - waits_.front().ended > kWaitsKept) waits_.pop_front();
}

void StepGate::lapse_from(Step n) {
  lapsed_ = true;
  step_valid_ = false;
  fence_ = kNever;
  if (!mutant_active(Mutant::lapsed_keeps_pending)) ahead_.clear();
  if (!in_force_ || !in_force_->plan->on || mutant_active(Mutant::lapsed_keeps_plan)) return;
  ahead_.push_front({Revision{}, std::make_shared<const Plan>(), n});
  end_reported_ = true;
}

Opening StepGate::begin(Step n, Ticks now) {
  const Entered entered(*this);
  if (n >= fence_) {
    if (!waiting_since_) waiting_since_ = now;
    const Ticks left = max_wait_ - (now - *waiting_since_);
    if (left > Ticks{} || mutant_active(Mutant::waits_for_its_agent)) return {true, left, {}, false, false};
    lapse_from(n);
  }
  end_wait(now);
  const bool leased = now < lease_until_;
  if (!leased && must_wait() && !mutant_active(Mutant::lapse_not_final)) lapse_from(n);
  Opening opening;
  while (!ahead_.empty() && ahead_.front().effective <= n) {
    in_force_ = std::move(ahead_.front());
    ahead_.pop_front();
    schedule_ = schedule_of(*in_force_->plan, in_force_->effective);
    end_reported_ = !in_force_->plan->on;
    if (in_force_->revision != Revision{}) applied_.emplace_back(in_force_->revision, n);
    opening.swap = in_force_;
  }
  step_valid_ = opening.collect =
      schedule_.collects(n) && (leased || !mutant_active(Mutant::lapse_not_final));
  if (!end_reported_ && n >= schedule_.end()) {
    end_reported_ = true;
    opening.ended = true;
  }
  handled_ = n;
  publish();
  return opening;
}

bool StepGate::step_still_valid(Ticks now) {
  const Entered entered(*this);
  if (now >= lease_until_ && step_valid_ && !mutant_active(Mutant::no_end_check)) {
    lapse_from(handled_ + 1);
    publish();
  }
  return std::exchange(step_valid_, false);
}

Step StepGate::promise(std::int64_t lookahead, Ticks max_wait) {
  const Entered entered(*this);
  if (abandoned_ || lapsed_) return kNever;
  max_wait_ = max_wait;
  held_from_start_ = false;
  Step now{current_.load()};
  do {
    interleaving_point();
    fence_ = now + std::max<std::int64_t>(lookahead, 1);
    publish();
    now = Step{current_.load()};
  } while (now >= fence_ && !mutant_active(Mutant::no_second_look));
  return fence_;
}

void StepGate::hold(Step fence, Ticks max_wait) {
  const Entered entered(*this);
  max_wait_ = max_wait;
  held_from_start_ = true;
  if (!abandoned_) fence_ = fence;
  publish();
}

void StepGate::release() { settle({}); }

template <typename Change>
void StepGate::apply(Change change) {
  {
    const Entered entered(*this);
    change();
    publish();
  }
  notify();
}

void StepGate::abandon() {
  apply([&] {
    abandoned_ = true;
    fence_ = kNever;
    if (lease_until_ != Ticks::max()) lease_until_ = Ticks::min();
  });
}

void StepGate::withdraw() {
  apply([&] {
    abandoned_ = true;
    lapse_from(handled_ + 1);
  });
}

void StepGate::lapse() {
  apply([&] { lapse_from(handled_ + 1); });
}

bool StepGate::enters_before(Step effective) {
  if (effective >= fence_) return effective > begun();
  // No promise covers this step. Set the fence there, then check whether training has passed it.
  interleaving_point();
  fence_ = effective;
  publish();
  return mutant_active(Mutant::no_second_look) || Step{current_.load()} < effective;
}

// Replaces the commitments that take effect at that step or later.
void StepGate::enter(const Commitment& commitment) {
  while (!ahead_.empty() && ahead_.back().effective >= commitment.effective) ahead_.pop_back();
  if (mutant_active(Mutant::one_commit_ahead)) ahead_.clear();
  ahead_.push_back(commitment);
}

bool StepGate::settle(const std::optional<Commitment>& commitment, Step fence) {
  bool in_time = true;
  apply([&] {
    if (commitment && !lapsed_) {
      in_time = enters_before(commitment->effective);
      if (in_time) enter(*commitment);
    }
    fence_ = lapsed_ || abandoned_ ? kNever : fence;
  });
  return in_time;
}

void StepGate::renew_lease(Ticks until) {
  const Entered entered(*this);
  lease_until_ = until;
}

void StepGate::check_lease(Ticks now) {
  {
    const Entered entered(*this);
    if (now < lease_until_ || !must_wait() || mutant_active(Mutant::lapse_not_final)) return;
    lapse_from(handled_ + 1);
    publish();
  }
  notify();
}

bool StepGate::lapsed() const {
  const Entered entered(*this);
  return lapsed_;
}

void StepGate::rejoin() {
  const Entered entered(*this);
  lapsed_ = false;
}

Ticks StepGate::waiting_for(Ticks now) const {
  const Entered entered(*this);
  return waiting_since_ ? now - *waiting_since_ : Ticks{};
}

Ticks StepGate::waited_in(Ticks span, Ticks now) const {
  const Entered entered(*this);
  Ticks sum = waiting_since_ && !held_from_start_ ? std::min(now - *waiting_since_, max_wait_) : Ticks{};
  for (const Wait& wait : waits_) {
    if (now - wait.ended <= span) sum += wait.lasted;
  }
  return sum;
}

std::vector<std::pair<Revision, Step>> StepGate::take_applied() {
  const Entered entered(*this);
  return std::exchange(applied_, {});
}

std::optional<Commitment> StepGate::in_force() const {
  const Entered entered(*this);
  return in_force_;
}

bool StepGate::commitment_ahead() const {
  const Entered entered(*this);
  return !ahead_.empty();
}

bool StepGate::needs_lease() const {
  const Entered entered(*this);
  return must_wait();
}

}  // namespace gradmon
