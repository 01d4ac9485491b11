// SPDX-License-Identifier: Apache-2.0
#include "control/link/agent.h"

#include <atomic>
#include <memory>
#include <thread>

#include "tests/support/catch.h"

namespace gradmon {
namespace {

constexpr Ticks kMaxWait{2'000};

Commitment on_from(std::int64_t effective) {
  auto plan = std::make_shared<Plan>();
  plan->on = true;
  plan->collect_times = 5;
  return {Revision{1}, plan, Step{effective}};
}

// A clock that always shows 0.
Ticks at_zero() { return Ticks{}; }

TEST_CASE("a commit without a fence takes effect at its step or is refused during training at full speed") {
  for (int round = 0; round < 300; ++round) {
    SharedGate gate(Step{0});
    std::atomic<bool> stop{false};
    std::atomic<std::int64_t> applied{-1};
    std::thread trainer([&] {
      for (Step n{0}; !stop; n = n + 1) {
        if (gate.try_begin(n)) continue;
        const Opening opening = gate.begin_or_wait(n, at_zero, [&] { return stop.load(); });
        if (opening.swap) applied = n.value;
      }
    });
    while (gate.current() < Step{50}) std::this_thread::yield();
    const std::int64_t effective = gate.current().value + 1 + round % 40;
    const bool in_time = gate.settle(on_from(effective));
    while (gate.current() < Step{effective + 10}) std::this_thread::yield();
    stop = true;
    trainer.join();
    CAPTURE(round, effective);
    REQUIRE(applied == (in_time ? effective : -1));
  }
}

TEST_CASE("a trainer at full speed never passes a promised fence") {
  SharedGate gate(Step{0});
  std::atomic<std::int64_t> fence{kNever.value};
  std::atomic<bool> stop{false};
  std::atomic<bool> passed{false};
  std::thread trainer([&] {
    for (Step n{0}; !stop; n = n + 1) {
      if (!gate.try_begin(n)) gate.begin_or_wait(n, at_zero, [&] { return stop.load(); });
      // `fence` is set only after the gate has promised it.
      if (n.value >= fence.load() && !stop) passed = true;
    }
  });
  for (int round = 0; round < 3000; ++round) {
    const Step promised = gate.promise(1 + round % 7, kMaxWait);
    fence = promised.value;
    while (round % 3 == 0 && gate.current() < promised) std::this_thread::yield();
    fence = kNever.value;
    gate.release();
  }
  stop = true;
  gate.release();
  trainer.join();
  REQUIRE_FALSE(passed);
}

TEST_CASE("an interrupted wait drops the promise and lapses") {
  SharedGate gate(Step{0});
  REQUIRE(gate.promise(1, kMaxWait) == Step{0});
  REQUIRE_FALSE(gate.try_begin(Step{0}));
  CHECK_FALSE(gate.begin_or_wait(Step{0}, at_zero, [] { return true; }).wait);
  CHECK(gate.lapsed());
  CHECK(gate.try_begin(Step{1}));
}

TEST_CASE("a release ends the wait") {
  SharedGate gate(Step{0});
  gate.promise(1, kMaxWait);
  std::thread agent([&] {
    while (gate.waiting_for(Ticks{1}) == Ticks{}) std::this_thread::yield();
    gate.release();
  });
  int slices = 0;
  gate.try_begin(Step{0});
  const Opening opening = gate.begin_or_wait(Step{0}, at_zero, [&] { return ++slices > 600; });
  agent.join();
  CHECK_FALSE(opening.wait);
  CHECK_FALSE(gate.lapsed());
}

}  // namespace
}  // namespace gradmon
