// SPDX-License-Identifier: Apache-2.0
#include "control/agree/step_gate.h"

#include <atomic>
#include <memory>
#include <thread>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

Commitment on_from(std::int64_t effective, std::int64_t times, std::int64_t interval = 1,
                   std::uint64_t revision = 1) {
  auto plan = std::make_shared<Plan>();
  plan->on = true;
  plan->collect_times = times;
  plan->step_interval = interval;
  return {Revision{revision}, plan, Step{effective}};
}

// Runs the trainer from its present step up to `last`; what each step found.
struct Seen {
  std::vector<std::int64_t> collected, slow;
  std::vector<std::pair<std::uint64_t, std::int64_t>> swaps;
  std::optional<std::int64_t> ended;
};

Seen run(StepGate& gate, std::int64_t first, std::int64_t last) {
  Seen seen;
  for (Step n{first}; n <= Step{last}; n = n + 1) {
    if (gate.try_begin(n)) continue;
    const Opening opening = gate.begin(n);
    REQUIRE_FALSE(opening.wait);
    seen.slow.push_back(n.value);
    if (opening.swap) seen.swaps.emplace_back(opening.swap->revision.value, n.value);
    if (opening.collect) seen.collected.push_back(n.value);
    if (opening.ended) seen.ended = n.value;
  }
  return seen;
}

TEST_CASE("an idle gate lets every step pass") {
  StepGate gate(Step{0});
  REQUIRE(run(gate, 0, 1000).slow.empty());
}

TEST_CASE("a plan is swapped in at its effective step and collects its steps") {
  StepGate gate(Step{0});
  run(gate, 0, 4);
  REQUIRE(gate.promise(3) == Step{7});
  REQUIRE(gate.settle(on_from(7, 2)));
  const Seen seen = run(gate, 5, 20);
  REQUIRE(seen.swaps == std::vector<std::pair<std::uint64_t, std::int64_t>>{{1, 7}});
  REQUIRE(seen.collected == std::vector<std::int64_t>{7, 8});
  REQUIRE(seen.ended == 9);
  REQUIRE(gate.take_applied() == std::vector<std::pair<Revision, Step>>{{Revision{1}, Step{7}}});
}

TEST_CASE("steps between two collected ones take the fast path") {
  StepGate gate(Step{0});
  REQUIRE(gate.settle(on_from(10, 3, 10)));
  const Seen seen = run(gate, 0, 60);
  REQUIRE(seen.collected == std::vector<std::int64_t>{10, 20, 30});
  REQUIRE(seen.slow == std::vector<std::int64_t>{10, 11, 20, 21, 30, 31});
}

TEST_CASE("a static plan may collect the very first step") {
  StepGate gate(Step{5});
  REQUIRE(gate.settle(on_from(5, 1)));
  REQUIRE(run(gate, 5, 8).collected == std::vector<std::int64_t>{5});
}

TEST_CASE("a promised fence stands until its verdict") {
  StepGate gate(Step{0});
  run(gate, 0, 2);
  const Step fence = gate.promise(1);
  REQUIRE(fence == Step{3});
  REQUIRE_FALSE(gate.try_begin(Step{3}));
  REQUIRE(gate.begin(Step{3}).wait);
  gate.release();
  REQUIRE_FALSE(gate.begin(Step{3}).wait);
}

TEST_CASE("a trainer that stands at the effective step has not begun it") {
  StepGate gate(Step{0});
  run(gate, 0, 2);
  REQUIRE(gate.promise(1) == Step{3});
  REQUIRE_FALSE(gate.try_begin(Step{3}));  // Has not come to the slow path yet.
  REQUIRE(gate.settle(on_from(3, 1)));
  REQUIRE(gate.begin(Step{3}).collect);
}

TEST_CASE("a commit whose step has begun is refused and not entered") {
  StepGate gate(Step{0});
  run(gate, 0, 9);
  REQUIRE_FALSE(gate.settle(on_from(9, 5)));
  REQUIRE(run(gate, 10, 20).collected.empty());
}

TEST_CASE("a promise in a collected phase never lifts the gate over a step to collect") {
  StepGate gate(Step{0});
  REQUIRE(gate.settle(on_from(1, 5)));
  run(gate, 0, 2);
  // The trainer has published step 3 but has not looked at the gate yet.
  gate.try_begin(Step{3});
  gate.promise(10);
  REQUIRE_FALSE(gate.try_begin(Step{3}));
  REQUIRE(gate.begin(Step{3}).collect);
}

TEST_CASE("a commit that no fence protects is entered in time or refused by a trainer at full speed") {
  for (int round = 0; round < 300; ++round) {
    StepGate gate(Step{0});
    std::atomic<bool> stop{false};
    std::atomic<std::int64_t> applied{-1};
    std::thread trainer([&] {
      for (Step n{0}; !stop; n = n + 1) {
        if (gate.try_begin(n)) continue;
        const Opening opening = gate.begin_or_wait(n, [&] { return stop.load(); });
        if (opening.swap) applied = n.value;
      }
    });
    while (gate.current() < Step{50}) std::this_thread::yield();
    const std::int64_t effective = gate.current().value + 1 + round % 40;
    const bool in_time = gate.settle(on_from(effective, 5));
    while (gate.current() < Step{effective + 10}) std::this_thread::yield();
    stop = true;
    trainer.join();
    CAPTURE(round, effective);
    REQUIRE(applied == (in_time ? effective : -1));
  }
}

TEST_CASE("an abandoned gate holds nobody") {
  StepGate gate(Step{0});
  run(gate, 0, 0);
  gate.abandon();
  gate.hold(Step{1});
  REQUIRE(run(gate, 1, 5).slow.empty());
}

TEST_CASE("two commits wait for their steps one after the other") {
  StepGate gate(Step{0});
  REQUIRE(gate.settle(on_from(5, 100, 1, 1)));
  REQUIRE(gate.settle(on_from(8, 1, 1, 2)));
  const Seen seen = run(gate, 0, 12);
  REQUIRE(seen.collected == std::vector<std::int64_t>{5, 6, 7, 8});
  REQUIRE(seen.swaps == std::vector<std::pair<std::uint64_t, std::int64_t>>{{1, 5}, {2, 8}});
}

TEST_CASE("no fence is ever passed by a trainer at full speed") {
  StepGate gate(Step{0});
  std::atomic<std::int64_t> fence{kNever.value};
  std::atomic<bool> stop{false};
  std::atomic<bool> passed{false};
  std::thread trainer([&] {
    for (Step n{0}; !stop; n = n + 1) {
      if (!gate.try_begin(n)) gate.begin_or_wait(n, [&] { return stop.load(); });
      // The fence is shown only after it has been promised.
      if (n.value >= fence.load() && !stop) passed = true;
    }
  });
  for (int round = 0; round < 3000; ++round) {
    const Step promised = gate.promise(1 + round % 7);
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

}  // namespace
}  // namespace gradmon
