// SPDX-License-Identifier: Apache-2.0
#include "control/agree/overhead_budget.h"

#include <algorithm>

#include "tests/control/agree/small_job.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

bool nearly_equal(double a, double b) { return a > b - 1e-9 && a < b + 1e-9; }

// A training thread. A step takes 10 ms, a collected step `cost` more.
class Training {
 public:
  Training(OverheadMeter& meter, std::int64_t interval) : meter_(meter), interval_(interval) {}

  void collect(int times, milliseconds cost) {
    for (int i = 0; i < times; ++i) {
      meter_.begin_collected(Step{step_}, now_, spent_);
      spent_ = cost;
      now_ += cost + interval_ * milliseconds{10};
      step_ += interval_;
    }
  }

 private:
  OverheadMeter& meter_;
  const std::int64_t interval_;
  std::int64_t step_ = 5;
  OverheadMeter::Time now_ = std::chrono::hours{9};
  OverheadMeter::Time spent_{};
};

TEST_CASE("nothing is measured until the round after the first has ended") {
  OverheadMeter meter;
  meter.begin_plan(Revision{4});
  Training training(meter, 1);
  training.collect(2, milliseconds{1});
  REQUIRE(meter.measured().collected == 0);
  REQUIRE(meter.measured().share == 0);
  training.collect(1, milliseconds{1});
  REQUIRE(meter.measured().collected == 1);
  REQUIRE(meter.measured().revision == Revision{4});
}

TEST_CASE("the share is the time spent divided by the wall time of whole rounds") {
  OverheadMeter meter;
  Training every(meter, 1);
  every.collect(7, milliseconds{10});
  REQUIRE(nearly_equal(meter.measured().share, 0.5));
  REQUIRE(meter.measured().steps == 5);
  meter.begin_plan(Revision{2});
  Training tenth(meter, 10);
  tenth.collect(7, milliseconds{25});
  REQUIRE(nearly_equal(meter.measured().share, 0.2));
  REQUIRE(meter.measured().steps == 50);
}

TEST_CASE("the window is the last eight rounds") {
  OverheadMeter meter;
  Training training(meter, 3);
  training.collect(30, milliseconds{30});
  REQUIRE(nearly_equal(meter.measured().share, 0.5));
  REQUIRE(meter.measured().collected == 28);
  REQUIRE(meter.measured().steps == 24);
  training.collect(9, milliseconds{0});
  REQUIRE(meter.measured().share == 0);
}

TEST_CASE("the first round of a plan is warm-up and does not count") {
  OverheadMeter meter;
  Training training(meter, 1);
  training.collect(1, milliseconds{4000});
  training.collect(9, milliseconds{0});
  REQUIRE(meter.measured().collected == 8);
  REQUIRE(meter.measured().share == 0);
}

TEST_CASE("a new plan drops all measurements") {
  OverheadMeter meter;
  Training(meter, 1).collect(20, milliseconds{10});
  meter.begin_plan(Revision{2});
  REQUIRE(meter.measured().collected == 0);
  REQUIRE(meter.measured().share == 0);
  Training(meter, 1).collect(3, milliseconds{0});
  REQUIRE(meter.measured().share == 0);
}

TEST_CASE("a clock that stands still gives a share of 0") {
  OverheadMeter meter;
  for (int i = 0; i < 20; ++i) meter.begin_collected(Step{i}, milliseconds{1}, milliseconds{0});
  REQUIRE(meter.measured().share == 0);
}

Plan plan_of(std::int64_t interval, double allowed, Cause cause = Cause::file) {
  Plan plan;
  plan.on = true;
  plan.step_interval = interval;
  plan.max_overhead = allowed;
  plan.cause = cause;
  return plan;
}

OverheadBudget::RankCost cost(int rank, double share, std::int64_t collected = 8,
                              std::uint64_t revision = 1) {
  return {rank, {Revision{revision}, collected, share, 0}};
}

struct BudgetCase {
  std::string name;
  Plan plan;
  std::vector<OverheadBudget::RankCost> costs;
  std::int64_t interval;  // that a change sets; 0: it turns collecting off; -1: no change is due
  std::string why;        // "": any
};

TEST_CASE("a budget changes the interval only if a measured plan exceeds it, and as its cost requires") {
  Plan without = plan_of(1, 0.01);
  without.max_overhead.reset();
  const std::vector<BudgetCase> cases{
      {"a share within the budget", plan_of(1, 0.01), {cost(0, 0.009), cost(1, 0.01, 5000)}, -1, ""},
      {"fewer than eight steps, or of another plan",
       plan_of(1, 0.01),
       {cost(0, 0.9, 7), cost(1, 0.9, 8, 2)},
       -1,
       ""},
      {"eight steps", plan_of(1, 0.01), {cost(0, 0.9, 8)}, 1024, ""},
      {"no budget", without, {cost(0, 0.99)}, -1, ""},
      // The cost is 0.041 / 0.959 of a step: 1 % of the time at an interval of 4.23 steps.
      {"one rank over the budget",
       plan_of(1, 0.01),
       {cost(0, 0.002), cost(3, 0.041), cost(4, 0.02)},
       8,
       "rank 3 spends 4.1 % of its time, allowed 1 %; every 8 steps, not every step"},
      {"the user's interval times a power of two", plan_of(3, 0.1), {cost(0, 0.11)}, 6, ""},
      {"4096 times the interval would still exceed it",
       plan_of(1, 0.0001),
       {cost(2, 0.5)},
       0,
       "rank 2 spends 50 % of its time, allowed 0.01 %; even every 4096 steps would exceed it"},
      {"the largest interval", plan_of(std::int64_t{1} << 61, 0.01), {cost(0, 0.9)}, 0, ""}};
  for (const BudgetCase& one : cases) {
    INFO(one.name);
    OverheadBudget budget;
    budget.on_commit(one.plan);
    const auto change = budget.change_due(one.plan, Revision{1}, one.costs);
    CHECK(change.has_value() == (one.interval >= 0));
    if (!change) continue;
    CHECK(change->on == (one.interval > 0));
    if (change->on) CHECK(change->step_interval == one.interval);
    if (!one.why.empty()) CHECK(change->why == one.why);
  }
}

TEST_CASE("at most one change is due for each revision") {
  OverheadBudget budget;
  const Plan plan = plan_of(1, 0.01);
  budget.on_commit(plan);
  REQUIRE(budget.change_due(plan, Revision{1}, {cost(0, 0.5)}));
  REQUIRE_FALSE(budget.change_due(plan, Revision{1}, {cost(0, 0.5, 100)}));
}

TEST_CASE("collecting goes off if longer intervals do not lower the share") {
  OverheadBudget budget;
  Plan plan = plan_of(1, 0.01);
  budget.on_commit(plan);
  std::uint64_t revision = 1;
  int changes = 0;
  for (; plan.on && changes < 10; ++changes, ++revision) {
    const auto change = budget.change_due(plan, Revision{revision}, {cost(0, 0.3, 8, revision)});
    REQUIRE(change);
    REQUIRE((!change->on || change->step_interval > plan.step_interval));
    plan.on = change->on;
    plan.step_interval = change->step_interval;
    plan.cause = Cause::budget;
    budget.on_commit(plan);
  }
  REQUIRE_FALSE(plan.on);
  REQUIRE(changes == 3);
}

TEST_CASE("the interval is lowered only if every rank has measured enough and stays well within the budget") {
  OverheadBudget budget;
  budget.on_commit(plan_of(2, 0.01));
  const Plan raised = plan_of(64, 0.01, Cause::budget);
  budget.on_commit(raised);
  REQUIRE_FALSE(budget.change_due(raised, Revision{2}, {cost(0, 0.001, 8, 2), cost(1, 0.001, 7, 2)}));
  REQUIRE_FALSE(budget.change_due(raised, Revision{2}, {cost(0, 0.001, 8, 2), cost(1, 0.0099, 8, 2)}));
  // At interval 32 the share would be 0.8 %: within the budget, but above 0.7 of it.
  REQUIRE_FALSE(budget.change_due(raised, Revision{2}, {cost(0, 0.004, 8, 2)}));
  const auto change = budget.change_due(raised, Revision{2}, {cost(0, 0.001, 8, 2), cost(1, 0.0012, 8, 2)});
  REQUIRE(change);
  REQUIRE(change->on);
  REQUIRE(change->step_interval == 16);
  REQUIRE(change->why ==
          "no rank spends more than 0.12 % of its time, allowed 1 %; every 16 steps, not every 64 steps");
}

TEST_CASE("the interval is never lowered below the user's") {
  OverheadBudget budget;
  budget.on_commit(plan_of(4, 0.01));
  const Plan raised = plan_of(8, 0.01, Cause::budget);
  budget.on_commit(raised);
  REQUIRE(budget.change_due(raised, Revision{2}, {cost(0, 0, 8, 2)})->step_interval == 4);
  const Plan lowered = plan_of(4, 0.01, Cause::budget);
  budget.on_commit(lowered);
  REQUIRE_FALSE(budget.change_due(lowered, Revision{3}, {cost(0, 0, 800, 3)}));
}

TEST_CASE("each lowering that proves wrong doubles the number of collected steps before the next one") {
  OverheadBudget budget;
  budget.on_commit(plan_of(1, 0.01));
  std::int64_t patience = 8;
  for (std::uint64_t revision = 1; revision < 30; revision += 2) {
    REQUIRE(budget.change_due(plan_of(1, 0.01), Revision{revision}, {cost(0, 0.05, 8, revision)}));
    const Plan raised = plan_of(8, 0.01, Cause::budget);
    budget.on_commit(raised);
    REQUIRE_FALSE(
        budget.change_due(raised, Revision{revision + 1}, {cost(0, 0, patience - 1, revision + 1)}));
    REQUIRE(budget.change_due(raised, Revision{revision + 1}, {cost(0, 0, patience, revision + 1)}));
    budget.on_commit(plan_of(1, 0.01, Cause::budget));
    patience = std::min<std::int64_t>(2 * patience, 1024);
  }
}

// --- In a whole job. ---

std::vector<std::int64_t> steps_from(const std::vector<std::int64_t>& steps, std::int64_t first) {
  std::vector<std::int64_t> found;
  for (const std::int64_t step : steps) {
    if (step >= first) found.push_back(step);
  }
  return found;
}

TEST_CASE("the budget raises the interval at one step on all ranks and the history says why") {
  SmallJob job(3);
  job.process(1).cost = microseconds{410};
  job.begin(job.plan_within(0.01));
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2) && job.process(0).collected.size() > 400; }));
  const auto entries = job.history();
  REQUIRE(entries.size() == 2);
  REQUIRE(entries[1].cause == "budget");
  REQUIRE(entries[1].verdict == "commit");
  REQUIRE(entries[1].by ==
          "the budget (rank 1 spends 4.1 % of its time, allowed 1 %; every 8 steps, not every step)");
  const Status status = job.coordinator().status();
  REQUIRE(status.reason == "set by " + entries[1].by);
  REQUIRE(status.step_interval == 8);
  REQUIRE(status.ranks[1].overhead.share > 0.005);
  REQUIRE(status.ranks[0].overhead.share == 0);
  REQUIRE(job.divergence().empty());
  const auto raised = steps_from(job.process(0).collected, entries[1].effective_step);
  REQUIRE(raised.size() >= 50);
  for (std::size_t i = 0; i < 50; ++i) {
    REQUIRE(raised[i] == entries[1].effective_step + static_cast<std::int64_t>(8 * i));
  }
  for (int rank = 1; rank < 3; ++rank) {
    const auto& own = job.process(rank).collected;
    const std::size_t both = std::min(own.size(), job.process(0).collected.size());
    REQUIRE(std::equal(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(both),
                       job.process(0).collected.begin()));
  }
}

TEST_CASE("the interval is lowered to the user's once the cost has fallen") {
  SmallJob job(2);
  job.process(1).cost = milliseconds{2};
  job.begin(job.plan_within(0.05, 2));
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  REQUIRE(job.tick_until([&] { return job.coordinator().status().step_interval == 8; }));
  job.process(1).cost = {};
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(3); }));
  REQUIRE(job.tick_until([&] { return job.coordinator().status().step_interval == 2; }));
  job.run_ticks(3'000);
  REQUIRE(job.in_force_on_all(3));
  REQUIRE(job.divergence().empty());
}

TEST_CASE("a plan that the budget turns off is written back like a plan that has ended") {
  SmallJob job(2);
  job.process(1).cost = milliseconds{9};
  const PlanPtr plan = job.plan_within(0.000'01);
  job.begin(plan);
  REQUIRE(job.tick_until([&] { return !job.write_backs.empty(); }));
  REQUIRE(job.in_force_on_all(2));
  REQUIRE(job.write_backs[0].revision == Revision{2});
  REQUIRE(job.write_backs[0].file == *plan->file);
  REQUIRE(job.coordinator().newest_is_off());
  REQUIRE(job.coordinator().status().state == "off");
  REQUIRE(job.coordinator().status().reason ==
          "turned off by the budget (rank 1 spends 90 % of its time, allowed 0.001 %; even every 4096 steps "
          "would exceed it) (revision 2)");
  REQUIRE(job.counted_in(3'000, 0) == 0);
  REQUIRE(job.write_backs.size() == 1);
}

TEST_CASE("a change by the user resets the interval that the budget has set") {
  SmallJob job(2);
  job.process(1).cost = milliseconds{1};
  job.begin(job.plan_within(0.05));
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  job.propose(job.plan(true, 1'000'000));
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(3); }));
  REQUIRE(job.tick_until([&] { return job.coordinator().status().step_interval == 1; }));
  REQUIRE(job.coordinator().status().reason.empty());
  job.run_ticks(3'000);
  REQUIRE(job.in_force_on_all(3));
}

TEST_CASE("a change by the user wins over an open change by the budget") {
  SmallJob job(2, {0, 0, 20, 1});
  job.process(1).cost = milliseconds{1};
  job.begin(job.plan_within(0.05));
  REQUIRE(job.tick_until([&] { return job.last_entry().cause == "budget"; }));
  REQUIRE(job.last_entry().verdict.empty());
  job.propose(job.plan(false));
  REQUIRE(job.tick_until([&] {
    return job.last_entry().verdict == "commit" && job.in_force_on_all(job.last_entry().revision.value);
  }));
  REQUIRE(job.coordinator().newest_is_off());
  REQUIRE(job.write_backs.empty());
  REQUIRE(job.divergence().empty());
}

TEST_CASE("a rank that misses the raised interval is resynced to it") {
  SmallJob job(2);
  job.process(0).cost = milliseconds{1};
  auto plan = std::make_shared<Plan>(*job.plan_within(0.05));
  plan->max_wait = Ticks{1000};
  job.begin(plan);
  REQUIRE(job.tick_until([&] {
    const auto entries = job.history();
    return entries.size() == 2 && entries[1].verdict == "commit";
  }));
  job.process(1).partitioned = true;
  job.run_ticks(1'700);
  REQUIRE(job.process(0).revision == 2);
  REQUIRE(job.process(1).revision == 0);
  job.process(1).partitioned = false;
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(3); }));
  REQUIRE(job.history()[2].cause == "resync");
  REQUIRE(job.coordinator().status().step_interval == 4);
}

}  // namespace
}  // namespace gradmon
