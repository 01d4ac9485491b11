// SPDX-License-Identifier: Apache-2.0
#include "control/agree/coordinator.h"
#include "tests/control/agree/small_job.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

TEST_CASE("answers to an earlier revision and messages of another epoch or process change nothing") {
  SmallJob job(2);
  job.train_off(50);
  Envelope of_one;  // the newest message of rank 1
  bool answers = false;
  Revision lost;  // the newest revision whose Ready of rank 1 was lost
  const auto send = [&](Message message, const std::function<void(Envelope&)>& change = {}) {
    Envelope envelope = of_one;
    envelope.message = std::move(message);
    if (change) change(envelope);
    job.coordinator().on_message(envelope, WallTime{});
  };
  job.should_lose = [&](bool up, const Envelope& one) {
    if (!up || one.rank != Rank{1}) return false;
    of_one = one;
    const auto* ready = std::get_if<Ready>(&one.message);
    if (ready != nullptr && !answers) lost = ready->revision;
    return ready != nullptr && !answers;
  };
  const PlanPtr plan = job.plan(true);
  job.propose(plan);
  REQUIRE(job.tick_until([&] { return lost == Revision{2}; }));
  REQUIRE(job.history().front().verdict == "abort");
  send(Reject{Revision{1}, "not I"});
  send(Ready{Revision{1}, plan->config_sha256, Step{100'000}});
  send(Left{Step{5}}, [](Envelope& one) { one.epoch = "0123456789abcdef0123456789abcdef"; });
  send(Left{Step{5}}, [](Envelope& one) { one.incarnation += 1; });
  answers = true;
  REQUIRE(job.tick_until([&] { return job.last_entry().final; }, 500));
  CHECK(job.committed(2));
  CHECK(job.last_entry().effective_step < 100'000);
  send(Reject{Revision{2}, "too late"});
  job.run_ticks(10);
  CHECK(job.committed(2));
  CHECK(job.history().size() == 2);
  CHECK(job.coordinator().status().ranks[1].state != "left");
}

}  // namespace
}  // namespace gradmon
