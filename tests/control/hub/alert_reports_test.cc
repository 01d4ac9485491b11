// SPDX-License-Identifier: Apache-2.0
// A whole hub and what ranks, honest and hostile, report to it: alerts, and values that they should have in
// common.
#include "control/alerts/alert_report.h"

#include <signal.h>
#include <unistd.h>

#include "control/alerts/replicas.h"
#include "control/host/child_process.h"
#include "control/host/history_file.h"
#include "tests/control/hub/hub_process.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

TEST_CASE("a rank that floods the hub with alerts harms neither the other rank nor its alerts") {
  HubWithRanks job(2);
  AlertReport one;
  one.alerts.resize(1);
  job.rank(0).say(0, one);
  REQUIRE(job.alerts(1).size() == 1);
  AlertReport many;
  many.alerts.resize(16);
  for (Alert& alert : many.alerts) alert.message = std::string(900, 'm');
  for (int i = 0; i < 2'000; ++i) job.rank(1).say(1, many);
  CHECK(job.rank(0).is_heard(0));
  const std::vector<Alert> listed = job.alerts(1);
  CHECK(listed[0].rank == Rank{0});
  CHECK(listed.size() <= 1 + 1 + 256);  // with the first one of its step
}

TEST_CASE("a hub that starts again after a kill continues its epoch, with its members and their alerts") {
  const JobPlace place;
  auto hub = std::make_unique<HubProcess>(place);
  std::string epoch;
  {
    HubPeer rank0(place), rank1(place);
    rank0.join(place, 0, 2);
    rank1.join(place, 1, 2);
    epoch = rank0.epoch;
    AlertReport report;
    report.alerts.resize(2);
    report.alerts[1].message = "the second";
    rank0.say(0, report);
    const auto file = place.output() / ".gradmon" / epoch / "alerts.jsonl";
    REQUIRE(eventually([&] { return read_alerts(file).size() == 2; }));
    hub->kill(SIGKILL);
    REQUIRE(hub->ended_within(std::chrono::seconds(10)));
    CHECK(rank0.is_closed());
  }
  hub = std::make_unique<HubProcess>(place);
  HubPeer rank(place), client(place);
  CHECK(rank.join(place, 0, 2).refused ==
        "rank 0 already belongs to pid " + std::to_string(getpid()) + " on " + host_name());
  CHECK(rank.epoch == epoch);
  CHECK(client.status().ranks.at(1).state != "absent");
  CommandReply reply;
  REQUIRE(eventually([&] {
    reply = client.ask(CommandVerb::alerts);
    return reply.alerts.size() == 2;
  }));
  CHECK(reply.alerts[1].message == "the second");
}

// The norm of one parameter after the update.
ReplicaRows rows_of(double norm, std::int64_t step) {
  auto targets = std::make_shared<ReplicaTargets>();
  targets->emplace_back(0, "fc1.weight");
  return {Revision{1}, step, Kind::param_updated, bit_of(Op::norm), std::move(targets), {norm}};
}

ReplicaDigests digests_of(const ReplicaRows& rows) { return {9, 2, {fold_into_digest(rows)}}; }

void answer(HubPeer& peer, int rank, const ReplicaRows& rows) {
  const auto request = peer.hear<ReplicaRequest>();
  REQUIRE(request);
  CHECK(request->step == rows.step);
  peer.say(rank,
           ReplicaValues{*request, 9, 1e-6, rows_in_bucket(rows, static_cast<std::size_t>(request->bucket))});
}

TEST_CASE("two ranks whose values differ are asked for them, and the second one is told of its alert") {
  HubWithRanks job(2);
  CHECK(job.welcome.takes_replicas);
  for (const auto& [step, of_rank1] : {std::pair{3, 1.5}, std::pair{4, 2.5}}) {
    job.rank(0).say(0, digests_of(rows_of(1.5, step)));
    job.rank(1).say(1, digests_of(rows_of(of_rank1, step)));
  }
  answer(job.rank(0), 0, rows_of(1.5, 4));
  answer(job.rank(1), 1, rows_of(2.5, 4));
  const auto found = job.rank(1).hear<AlertReport>();
  REQUIRE(found);
  REQUIRE(found->alerts.size() == 1);
  CHECK(found->alerts[0].tag_name == "0:fc1.weight/rank1/param_updated");
  CHECK(found->alerts[0].step == 4);
  CHECK(job.alerts(0).empty());  // The rank itself reports it.
}

TEST_CASE("a rank that floods the hub with digests does not keep it from answering") {
  HubWithRanks job(2);
  for (std::int64_t i = 0; i < 2'000; ++i) {
    ReplicaDigests digests{static_cast<std::uint64_t>(i % 7), 2, {}};
    for (std::int64_t k = 0; k < 20; ++k) digests.digests.push_back(fold_into_digest(rows_of(7, 20 * i + k)));
    job.rank(1).say(1, digests);
  }
  CHECK(job.rank(0).is_heard(0));
  CHECK(job.alerts(0).empty());
}

}  // namespace
}  // namespace gradmon
