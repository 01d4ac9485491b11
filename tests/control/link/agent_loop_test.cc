// SPDX-License-Identifier: Apache-2.0
#include "control/link/agent_loop.h"

#include <stdexcept>

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

}  // namespace
}  // namespace gradmon
