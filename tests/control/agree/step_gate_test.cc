// SPDX-License-Identifier: Apache-2.0
#include "control/agree/step_gate.h"

#include <memory>

#include "tests/support/catch.h"

namespace gradmon {
namespace {

constexpr Ticks kMaxWait{2'000};

Commitment on_from(std::int64_t effective, std::int64_t times, std::int64_t interval = 1,
                   std::uint64_t revision = 1) {
  auto plan = std::make_shared<Plan>();
  plan->on = true;
  plan->collect_times = times;
  plan->step_interval = interval;
  return {Revision{revision}, plan, Step{effective}};
}

Commitment off_from(std::int64_t effective, std::uint64_t revision = 2) {
  return {Revision{revision}, std::make_shared<Plan>(), Step{effective}};
}

// The steps of run(), by the result of their boundary.
struct RunResult {
  std::vector<std::int64_t> collected, counted, slow;
  std::vector<std::pair<std::uint64_t, std::int64_t>> swaps;
  std::optional<std::int64_t> ended;
};

// Trains from step `first` to step `last`.
RunResult run(StepGate& gate, std::int64_t first, std::int64_t last, Ticks now = {}) {
  RunResult result;
  for (Step n{first}; n <= Step{last}; n = n + 1) {
    if (gate.try_begin(n)) continue;
    const Opening opening = gate.begin(n, now);
    REQUIRE_FALSE(opening.wait);
    result.slow.push_back(n.value);
    if (opening.swap) result.swaps.emplace_back(opening.swap->revision.value, n.value);
    if (opening.collect) result.collected.push_back(n.value);
    if (opening.collect && gate.step_still_valid(now)) result.counted.push_back(n.value);
    if (opening.ended) result.ended = n.value;
  }
  return result;
}

TEST_CASE("an idle gate lets every step pass") {
  StepGate gate(Step{0});
  REQUIRE(run(gate, 0, 1000).slow.empty());
}

TEST_CASE("a plan is swapped in at its effective step and collects its steps") {
  StepGate gate(Step{0});
  run(gate, 0, 4);
  REQUIRE(gate.promise(3, kMaxWait) == Step{7});
  REQUIRE(gate.settle(on_from(7, 2)));
  const RunResult result = run(gate, 5, 20);
  REQUIRE(result.swaps == std::vector<std::pair<std::uint64_t, std::int64_t>>{{1, 7}});
  REQUIRE(result.collected == std::vector<std::int64_t>{7, 8});
  REQUIRE(result.ended == 9);
  REQUIRE(gate.take_applied() == std::vector<std::pair<Revision, Step>>{{Revision{1}, Step{7}}});
}

TEST_CASE("steps between two collected ones take the fast path") {
  StepGate gate(Step{0});
  REQUIRE(gate.settle(on_from(10, 3, 10)));
  const RunResult result = run(gate, 0, 60);
  REQUIRE(result.collected == std::vector<std::int64_t>{10, 20, 30});
  REQUIRE(result.slow == std::vector<std::int64_t>{10, 11, 20, 21, 30, 31});
}

TEST_CASE("a static plan may collect the very first step") {
  StepGate gate(Step{5});
  REQUIRE(gate.settle(on_from(5, 1)));
  REQUIRE(run(gate, 5, 8).collected == std::vector<std::int64_t>{5});
}

TEST_CASE("a promised fence stops training until the promise is released") {
  StepGate gate(Step{0});
  run(gate, 0, 2);
  const Step fence = gate.promise(1, kMaxWait);
  REQUIRE(fence == Step{3});
  REQUIRE_FALSE(gate.try_begin(Step{3}));
  REQUIRE(gate.begin(Step{3}, Ticks{}).wait);
  gate.release();
  REQUIRE_FALSE(gate.begin(Step{3}, Ticks{}).wait);
}

TEST_CASE("a trainer that waits at the effective step has not begun it") {
  StepGate gate(Step{0});
  run(gate, 0, 2);
  REQUIRE(gate.promise(1, kMaxWait) == Step{3});
  REQUIRE_FALSE(gate.try_begin(Step{3}));  // It has not reached the slow path yet.
  REQUIRE(gate.settle(on_from(3, 1)));
  REQUIRE(gate.begin(Step{3}, Ticks{}).collect);
}

TEST_CASE("a promise does not open the fast path for a step that is collected") {
  StepGate gate(Step{0});
  REQUIRE(gate.settle(on_from(1, 5)));
  run(gate, 0, 2);
  // The trainer has published step 3 but has not looked at the gate yet.
  gate.try_begin(Step{3});
  gate.promise(10, kMaxWait);
  REQUIRE_FALSE(gate.try_begin(Step{3}));
  REQUIRE(gate.begin(Step{3}, Ticks{}).collect);
}

TEST_CASE("training never waits at an abandoned gate") {
  StepGate gate(Step{0});
  run(gate, 0, 0);
  gate.abandon();
  gate.hold(Step{1}, kMaxWait);
  REQUIRE(run(gate, 1, 5).slow.empty());
}

TEST_CASE("a trainer that has waited at its fence for max_wait lapses by itself") {
  StepGate gate(Step{0});
  run(gate, 0, 2);
  REQUIRE(gate.promise(1, kMaxWait) == Step{3});
  REQUIRE_FALSE(gate.try_begin(Step{3}));
  REQUIRE(gate.begin(Step{3}, Ticks{100}).wait);
  REQUIRE(gate.begin(Step{3}, Ticks{2'099}).wait);
  REQUIRE(gate.waiting_for(Ticks{2'099}) == Ticks{1'999});
  REQUIRE_FALSE(gate.begin(Step{3}, Ticks{2'100}).wait);
  REQUIRE(gate.lapsed());
  REQUIRE(run(gate, 4, 10).slow.empty());
}

TEST_CASE("a lapse ends the plan in force at the next boundary and drops later commits") {
  StepGate gate(Step{0});
  REQUIRE(gate.settle(on_from(1, 100)));
  REQUIRE(gate.settle(on_from(6, 100, 1, 2)));
  REQUIRE(run(gate, 0, 3).counted == std::vector<std::int64_t>{1, 2, 3});
  REQUIRE(gate.take_applied().size() == 1);
  gate.lapse();
  const RunResult result = run(gate, 4, 20);
  REQUIRE(result.collected.empty());
  REQUIRE(result.swaps == std::vector<std::pair<std::uint64_t, std::int64_t>>{{0, 4}});
  REQUIRE_FALSE(gate.in_force()->plan->on);
  REQUIRE(gate.take_applied().empty());
}

TEST_CASE("a step does not count if the rank has lapsed since the step began") {
  StepGate gate(Step{0});
  REQUIRE(gate.settle(on_from(1, 100)));
  run(gate, 0, 0);
  REQUIRE_FALSE(gate.try_begin(Step{1}));
  REQUIRE(gate.begin(Step{1}, Ticks{}).collect);
  gate.lapse();
  gate.rejoin();
  REQUIRE_FALSE(gate.step_still_valid(Ticks{}));
}

TEST_CASE("a step does not count if the lease expires before the step ends") {
  StepGate gate(Step{0});
  gate.require_lease();
  gate.renew_lease(Ticks{1'000});
  REQUIRE(gate.settle(on_from(1, 100)));
  run(gate, 0, 0);
  gate.try_begin(Step{1});
  REQUIRE(gate.begin(Step{1}, Ticks{999}).collect);
  REQUIRE_FALSE(gate.step_still_valid(Ticks{1'000}));
  REQUIRE(gate.lapsed());
}

TEST_CASE("nothing is collected without a lease even if the lease is renewed later") {
  StepGate gate(Step{0});
  gate.require_lease();
  gate.renew_lease(Ticks{1'000});
  REQUIRE(gate.settle(on_from(1, 100)));
  REQUIRE(run(gate, 0, 3, Ticks{500}).counted.size() == 3);
  const RunResult without = run(gate, 4, 6, Ticks{1'000});
  REQUIRE(without.collected.empty());
  gate.renew_lease(Ticks{100'000});
  REQUIRE(run(gate, 7, 9, Ticks{1'001}).collected.empty());
  REQUIRE(gate.lapsed());
}

TEST_CASE("a rank whose agent has failed collects nothing more, not even the current step") {
  StepGate gate(Step{0});
  gate.require_lease();
  gate.renew_lease(Ticks{10'000});
  REQUIRE(gate.settle(on_from(1, 100)));
  run(gate, 0, 3, Ticks{500});
  gate.try_begin(Step{4});
  REQUIRE(gate.begin(Step{4}, Ticks{500}).collect);
  gate.abandon();
  REQUIRE_FALSE(gate.step_still_valid(Ticks{501}));
  REQUIRE(run(gate, 5, 9, Ticks{502}).collected.empty());
}

TEST_CASE("a rank that needs no lease keeps its plan when its agent fails") {
  StepGate gate(Step{0});
  REQUIRE(gate.settle(on_from(1, 100)));
  run(gate, 0, 3);
  gate.abandon();
  REQUIRE(run(gate, 4, 9).counted.size() == 6);
}

TEST_CASE("a lapsed gate accepts neither a promise nor a commit until it rejoins") {
  StepGate gate(Step{0});
  run(gate, 0, 2);
  gate.lapse();
  REQUIRE(gate.promise(1, kMaxWait) == kNever);
  gate.settle(on_from(5, 2), Step{4});
  REQUIRE(run(gate, 3, 10).slow.empty());
  gate.rejoin();
  REQUIRE(gate.promise(2, kMaxWait) == Step{12});
  REQUIRE(gate.settle(on_from(12, 2)));
  REQUIRE(run(gate, 11, 20).counted == std::vector<std::int64_t>{12, 13});
}

TEST_CASE("a gate that lapses twice before the next boundary still goes off there") {
  StepGate gate(Step{0});
  REQUIRE(gate.settle(on_from(1, 100)));
  run(gate, 0, 3);
  gate.lapse();
  gate.rejoin();
  gate.lapse();
  REQUIRE_FALSE(gate.needs_lease());
  REQUIRE(run(gate, 4, 9).collected.empty());
}

TEST_CASE("a commit replaces a waiting commit with a later effective step") {
  StepGate gate(Step{0});
  REQUIRE(gate.settle(on_from(9, 100, 1, 1)));
  REQUIRE(gate.settle(on_from(5, 100, 1, 2)));
  REQUIRE(run(gate, 0, 12).swaps == std::vector<std::pair<std::uint64_t, std::int64_t>>{{2, 5}});
}

TEST_CASE("a wait counts for ten minutes and at most max_wait unless it was the wait at the start") {
  StepGate gate(Step{0});
  gate.hold(Step{1}, kMaxWait);
  run(gate, 0, 0);
  gate.try_begin(Step{1});
  REQUIRE(gate.begin(Step{1}, Ticks{0}).wait);
  gate.release();
  REQUIRE_FALSE(gate.begin(Step{1}, Ticks{1'500}).wait);
  REQUIRE(gate.waited_in(Ticks{600'000}, Ticks{1'500}) == Ticks{});
  gate.promise(1, kMaxWait);
  gate.try_begin(Step{2});
  REQUIRE(gate.begin(Step{2}, Ticks{2'000}).wait);
  REQUIRE(gate.waited_in(Ticks{600'000}, Ticks{2'500}) == Ticks{500});
  REQUIRE_FALSE(gate.begin(Step{2}, Ticks{50'000}).wait);  // The process was stopped.
  REQUIRE(gate.waited_in(Ticks{600'000}, Ticks{50'000}) == kMaxWait);
  REQUIRE(gate.waited_in(Ticks{600'000}, Ticks{650'001}) == Ticks{});
}

TEST_CASE("an off whose step has begun is refused and an off at the next step ends the plan") {
  StepGate gate(Step{0});
  REQUIRE(gate.settle(on_from(1, 100)));
  run(gate, 0, 9);
  REQUIRE_FALSE(gate.settle(off_from(5)));
  REQUIRE(gate.settle(off_from(10)));
  REQUIRE(run(gate, 10, 20).collected.empty());
}

}  // namespace
}  // namespace gradmon
