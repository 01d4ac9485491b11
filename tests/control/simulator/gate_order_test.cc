// SPDX-License-Identifier: Apache-2.0
// The step gate under the memory model of C++, by Relacy: it runs the gate's own code on two threads, in all
// orders that the scheduler comes to, and lets each load return any value that the memory orders allow. A
// processor such as Arm's shows such values; x86 shows few of them.
#include <algorithm>
#include <atomic>
#include <deque>
#include <iostream>
#include <sstream>
#include <utility>
#include <vector>

#include "control/agree/mutant.h"
#include "control/agree/plan.h"
#include "tests/support/catch.h"
// After all others: it renames parts of the language.
#include <relacy/relacy.hpp>
#undef assert
#undef calloc
#undef delete
#undef errno
#undef free
#undef malloc
#undef memory_order_acq_rel
#undef memory_order_acquire
#undef memory_order_consume
#undef memory_order_relaxed
#undef memory_order_release
#undef memory_order_seq_cst
#undef new
#undef realloc

namespace gradmon {
namespace {

// Relacy replaces both, inline: the rest of the program must find this one, too.
[[maybe_unused]] void (*const volatile operator_delete)(void*) = ::operator delete;

enum class Orders : std::uint8_t { as_written, acquire_release };
Orders orders = Orders::as_written;

rl::memory_order relacy_order(std::memory_order written, rl::memory_order weaker) {
  if (orders == Orders::acquire_release) return weaker;
  switch (written) {
    case std::memory_order_relaxed:
      return rl::mo_relaxed;
    case std::memory_order_acquire:
    case std::memory_order_consume:
      return rl::mo_acquire;
    case std::memory_order_release:
      return rl::mo_release;
    case std::memory_order_acq_rel:
      return rl::mo_acq_rel;
    default:
      return rl::mo_seq_cst;
  }
}

}  // namespace

// In place of std::atomic in the gate's code.
template <typename T>
class CheckedAtomic {
 public:
  CheckedAtomic(T value) { value_.store(value, rl::mo_seq_cst, RL_INFO); }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) {
    value_.store(value, relacy_order(order, rl::mo_release), RL_INFO);
  }
  T load(std::memory_order order = std::memory_order_seq_cst) const {
    return value_.load(relacy_order(order, rl::mo_acquire), RL_INFO);
  }

 private:
  rl::atomic<T> value_;
};

}  // namespace gradmon

namespace std {
template <typename T>
using checked_atomic = gradmon::CheckedAtomic<T>;
}
#define atomic checked_atomic
#define StepGate CheckedStepGate
#include "control/agree/step_gate.cc"
#undef StepGate
#undef atomic

namespace gradmon {
namespace {

class Gate final : public CheckedStepGate {
 public:
  using CheckedStepGate::CheckedStepGate;

 private:
  void lock() const override { mutex_.lock(RL_INFO); }
  void unlock() const override { mutex_.unlock(RL_INFO); }
  mutable rl::mutex mutex_;
};

constexpr std::int64_t kSteps = 3;

int runs = 0, violations = 0;  // of the last check()

// The training thread, until a promise stops it, and an agent. Relacy makes one for each order that it tries.
template <typename Test>
struct TwoThreads : rl::test_suite<Test, 2> {
  Gate gate{Step{1}};
  Step begun{0};    // the last step that training has begun
  Step swapped{0};  // the step before which it has swapped to the committed plan

  void thread(unsigned index) {
    if (index == 1) return static_cast<Test*>(this)->act_as_agent();
    for (Step n{1}; n.value <= kSteps; n = n + 1) {
      if (!gate.try_begin(n)) {
        const Opening opening = gate.begin(n, Ticks{1});
        if (opening.wait) return;
        if (opening.swap) swapped = n;
      }
      begun = n;
    }
  }
  void after() {
    ++runs;
    if (!static_cast<Test*>(this)->holds()) ++violations;
  }
};

// No step at or after a promised fence begins.
struct Promise : TwoThreads<Promise> {
  Step fence = kNever;
  void act_as_agent() { fence = gate.promise(1, Ticks{1000}); }
  bool holds() const { return begun < fence; }
};

// A commitment that the gate accepts comes into force before its step, even if no promise covers it.
struct Settlement : TwoThreads<Settlement> {
  static constexpr Step kEffective{2};
  bool accepted = false;
  void act_as_agent() {
    accepted = gate.settle(Commitment{Revision{1}, std::make_shared<const Plan>(), kEffective});
  }
  bool holds() const { return !accepted || begun < kEffective || swapped == kEffective; }
};

template <typename Test>
void check(Orders wanted, rl::scheduler_type_e scheduler) {
  orders = wanted;
  runs = violations = 0;
  rl::test_params parameters;
  std::ostringstream printed;
  parameters.output_stream = parameters.progress_stream = &printed;
  parameters.search_type = scheduler;
  parameters.context_bound = 4;
  parameters.iteration_count = 20'000;
  const bool completed = rl::simulate<Test>(parameters);
  orders = Orders::as_written;
  INFO(printed.str());
  CHECK(completed);
  CHECK(runs >= 1'000);
}

TEMPLATE_TEST_CASE("the step gate holds under the memory model of C++", "", Promise, Settlement) {
  check<TestType>(Orders::as_written, GENERATE(rl::sched_bound, rl::sched_random));
  CHECK(violations == 0);
}

TEMPLATE_TEST_CASE("acquire and release would not be enough for the step gate", "", Promise, Settlement) {
  check<TestType>(Orders::acquire_release, rl::sched_random);
  CHECK(violations > 0);
}

}  // namespace
}  // namespace gradmon
