// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/unended_step.h"

#include <catch2/catch.hpp>

namespace gradmon {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

const UnendedStep::Time kBegin{};

UnendedStep::Seen at_step(std::int64_t step) {
  UnendedStep::Seen seen;
  seen.current = Step{step};
  return seen;
}

TEST_CASE("a switch that waits for 60 s while no step ends is said, until a step ends") {
  UnendedStep unended(Rank{2}, 1);
  UnendedStep::Seen seen = at_step(7);
  CHECK(unended.look(seen, kBegin).empty());
  CHECK(unended.look(seen, kBegin + minutes(30)).empty());  // nothing waits
  seen.switch_pending = true;
  CHECK(unended.look(seen, kBegin + minutes(30)).empty());
  CHECK(unended.look(seen, kBegin + minutes(30) + seconds(59)).empty());
  CHECK(unended.look(seen, kBegin + minutes(31)) ==
        "rank 2: no step has ended for 60 s; if training runs, its step is captured: call monitor.step()");
  CHECK_FALSE(unended.look(seen, kBegin + minutes(40)).empty());
  seen.current = Step{8};
  CHECK(unended.look(seen, kBegin + minutes(41)).empty());
}

TEST_CASE("a switch that waits while steps end is not said") {
  UnendedStep unended(Rank{0}, 1);
  for (int i = 0; i < 100; ++i) {
    UnendedStep::Seen seen = at_step(i / 2);
    seen.switch_pending = true;
    CHECK(unended.look(seen, kBegin + seconds(20 * i)).empty());
  }
}

TEST_CASE("64 passes without the end of a step are said, or four accumulations if that is more") {
  const auto [accumulation, most] = GENERATE(std::pair(1, 64), std::pair(8, 64), std::pair(32, 128));
  UnendedStep unended(Rank{0}, accumulation);
  UnendedStep::Seen seen = at_step(0);
  seen.collecting = true;
  seen.passes = most - 1;
  CHECK(unended.look(seen, kBegin).empty());
  seen.passes = most;
  CHECK(unended.look(seen, kBegin).find("no step has ended for " + std::to_string(most) + " passes;") !=
        std::string::npos);
}

TEST_CASE("ten minutes in a collected step are said, but not in an evaluation") {
  UnendedStep unended(Rank{0}, 1);
  UnendedStep::Seen seen = at_step(3);
  CHECK(unended.look(seen, kBegin).empty());
  CHECK(unended.look(seen, kBegin + minutes(11)).empty());  // off
  seen.collecting = true;
  seen.evaluations = 1;
  CHECK(unended.look(seen, kBegin + minutes(11)).empty());
  seen.evaluations = 0;
  CHECK(unended.look(seen, kBegin + minutes(11)) ==
        "rank 0: no step has ended for 10 min; if training runs, its step is captured: call monitor.step()");
}

}  // namespace
}  // namespace gradmon
