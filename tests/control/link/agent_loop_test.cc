// SPDX-License-Identifier: Apache-2.0
#include "control/link/agent_loop.h"

#include <atomic>
#include <stdexcept>
#include <thread>

#include "control/link/background_call.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

using std::chrono::seconds;

Command command(const std::string& id) {
  Command made;
  made.request_id = id;
  return made;
}

TEST_CASE("a command is sent every second until it is answered") {
  PendingCommands own;
  const PendingCommands::Clock::time_point start{seconds(1'000)};
  own.add(command("a"), start);
  own.add(command("b"), start);
  CHECK(own.due(start).size() == 2);
  CHECK(own.due(start + std::chrono::milliseconds(999)).empty());
  own.answered("a", CommandReply{});
  own.answered("unknown", CommandReply{});
  const auto again = own.due(start + seconds(1));
  REQUIRE(again.size() == 1);
  CHECK(again[0].request_id == "b");
  own.answered("b", CommandReply{});
  CHECK(own.due(start + seconds(2)).empty());
}

TEST_CASE("a command without an answer is dropped after a minute and the oldest of more than 100 at once") {
  PendingCommands own;
  const PendingCommands::Clock::time_point start{seconds(1'000)};
  for (int i = 0; i < 150; ++i) own.add(command(std::to_string(i)), start);
  const auto due = own.due(start);
  REQUIRE(due.size() == 100);
  CHECK(due.front().request_id == "50");
  own.drop_expired(start + seconds(60));
  CHECK(own.due(start + seconds(60)).size() == 100);
  own.drop_expired(start + seconds(61));
  CHECK(own.due(start + seconds(61)).empty());
}

TEST_CASE("a command that was never sent is dropped a minute after it was added") {
  PendingCommands own;
  const PendingCommands::Clock::time_point start{seconds(1'000)};
  own.add(command("a"), start);
  own.add(command("b"), start + seconds(30));
  own.drop_expired(start + seconds(61));
  const auto due = own.due(start + seconds(61));
  REQUIRE(due.size() == 1);
  CHECK(due[0].request_id == "b");
}

using std::chrono::milliseconds;

// The measured duration of such steps, looked at every 100 ms for ten seconds.
double measured(milliseconds step) {
  const StepPace::Time begin{};
  StepPace pace(Step{5}, begin);
  for (milliseconds now{0}; now <= milliseconds{10'000}; now += milliseconds{100})
    pace.look(Step{5 + now / step}, begin + now);
  return pace.step_ms();
}

TEST_CASE("the pace of steps is measured, however long they take") {
  CHECK(measured(milliseconds{50}) == 50);
  CHECK(measured(milliseconds{400}) == 400);
  CHECK(measured(milliseconds{1'500}) == 1'500);
  CHECK(measured(milliseconds{5'000}) == 5'000);
  CHECK(measured(milliseconds{20'000}) == 0);
}

using Call = BackgroundCall<int>;

Call::Outcome outcome_of(std::function<Call::Outcome()> work) {
  Call call;
  call.begin(std::move(work));
  std::optional<Call::Outcome> outcome;
  REQUIRE(eventually([&] {
    outcome = call.poll();
    return outcome.has_value();
  }));
  CHECK_FALSE(call.under_way());
  return *outcome;
}

TEST_CASE("poll returns the answer of a call") {
  CHECK(outcome_of([] { return 7; }) == 7);
}

TEST_CASE("an exception of a call becomes an error") {
  CHECK(outcome_of([]() -> Call::Outcome { throw std::runtime_error("no store"); }).error() == "no store");
  CHECK(outcome_of([]() -> Call::Outcome { throw 1; }).error() == "unknown exception");
}

// --- SharedGate. ---

// A clock that always shows 0.
Ticks at_zero() { return Ticks{}; }

// Trains at full speed during `meanwhile`, and calls on_step at each step.
template <typename OnStep, typename Meanwhile>
void train_during(SharedGate& gate, OnStep on_step, Meanwhile meanwhile) {
  std::atomic<bool> stop{false};
  std::thread trainer([&] {
    for (Step n{0}; !stop; n = n + 1) {
      Opening opening;
      if (!gate.try_begin(n)) opening = gate.begin_or_wait(n, at_zero, [&] { return stop.load(); });
      if (!stop) on_step(n, opening);
    }
  });
  meanwhile();
  stop = true;
  gate.release();
  trainer.join();
}

TEST_CASE("a commit without a fence takes effect at its step or is refused during training at full speed") {
  const auto plan = std::make_shared<Plan>();
  plan->on = true;
  plan->collect_times = 5;
  for (int round = 0; round < 300; ++round) {
    SharedGate gate(Step{0});
    std::int64_t applied = -1;
    std::int64_t expected = -1;
    const auto on_step = [&](Step n, const Opening& opening) { applied = opening.swap ? n.value : applied; };
    train_during(gate, on_step, [&] {
      while (gate.current() < Step{50}) std::this_thread::yield();
      const Step effective = gate.current() + 1 + round % 40;
      if (gate.settle(Commitment{Revision{1}, plan, effective})) expected = effective.value;
      while (gate.current() < effective + 10) std::this_thread::yield();
    });
    CAPTURE(round);
    REQUIRE(applied == expected);
  }
}

TEST_CASE("a trainer at full speed never passes a promised fence") {
  SharedGate gate(Step{0});
  std::atomic<std::int64_t> fence{kNever.value};  // set only after the gate has promised it
  bool passed = false;
  const auto on_step = [&](Step n, const Opening&) { passed = passed || n.value >= fence.load(); };
  train_during(gate, on_step, [&] {
    for (int round = 0; round < 3000; ++round) {
      const Step promised = gate.promise(1 + round % 7, Ticks{2'000});
      fence = promised.value;
      while (round % 3 == 0 && gate.current() < promised) std::this_thread::yield();
      fence = kNever.value;
      gate.release();
    }
  });
  REQUIRE_FALSE(passed);
}

TEST_CASE("an interrupted wait drops the promise and lapses") {
  SharedGate gate(Step{0});
  REQUIRE(gate.promise(1, Ticks{2'000}) == Step{0});
  REQUIRE_FALSE(gate.try_begin(Step{0}));
  CHECK_FALSE(gate.begin_or_wait(Step{0}, at_zero, [] { return true; }).wait);
  CHECK(gate.lapsed());
  CHECK(gate.try_begin(Step{1}));
}

}  // namespace
}  // namespace gradmon
