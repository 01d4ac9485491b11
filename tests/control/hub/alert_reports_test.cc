// SPDX-License-Identifier: Apache-2.0
// A whole hub and the alert reports that reach it from ranks, honest and hostile.
// A whole hub and what ranks tell it of values that they should have in common.
#include "control/alerts/alert_report.h"

#include <signal.h>

#include <memory>
#include <string>

#include "control/alerts/replicas.h"
#include "control/debian_version.h"
#include "control/host/history_file.h"
#include "tests/control/hub/hub_process.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("a rank reports alerts for itself alone and an invalid report closes its connection alone") {
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer rank0(place), rank1(place), client(place);
  CHECK(rank0.join(place, 0, 2).takes_alerts);
  rank1.join(place, 1, 2);
  AlertReport report;
  report.alerts.resize(1);
  report.alerts[0].rank = Rank{0};
  report.alerts[0].message = "\x1b[31m\xff";
  rank1.say(1, report);
  CommandReply reply;
  REQUIRE(eventually([&] {
    reply = client.ask(CommandVerb::alerts);
    return !reply.alerts.empty();
  }));
  CHECK(reply.alerts[0].rank == Rank{1});
  CHECK(reply.alerts[0].message == "\x1b[31m\xff");
  HubPeer liar(place);
  liar.epoch = rank0.epoch;
  liar.incarnation = rank0.incarnation;
  liar.introduce(place, 1, 2);
  liar.say(0, report);
  CHECK(liar.is_closed());
  // The length of the message, the last field of the frame, reaches beyond the report.
  std::string broken = encode(Frame(Bundles{{rank1.epoch, {{1, rank1.incarnation}}, report}}));
  broken[broken.size() - report.alerts[0].message.size() - 1] = '\x7f';
  REQUIRE_FALSE(decode_frame(broken));
  rank1.send_bytes(broken);
  CHECK(rank1.is_closed());
  rank0.say(0, Progress{});
  CHECK(rank0.hear<ProgressAck>());
  CHECK(client.ask(CommandVerb::alerts).alerts.size() == 1);
}

TEST_CASE("a rank that floods the hub with alerts harms neither the other rank nor its alerts") {
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer rank0(place), rank1(place), client(place);
  rank0.join(place, 0, 2);
  rank1.join(place, 1, 2);
  AlertReport one;
  one.alerts.resize(1);
  rank0.say(0, one);
  REQUIRE(eventually([&] { return client.ask(CommandVerb::alerts).alerts.size() == 1; }));
  AlertReport many;
  many.alerts.resize(16);
  for (RankAlert& alert : many.alerts) alert.message = std::string(900, 'm');
  for (int i = 0; i < 2'000; ++i) rank1.say(1, many);
  rank0.say(0, Progress{});
  CHECK(rank0.hear<ProgressAck>());
  const CommandReply reply = client.ask(CommandVerb::alerts);
  REQUIRE_FALSE(reply.alerts.empty());
  CHECK(reply.alerts[0].rank == Rank{0});
  CHECK(reply.alerts.size() <= 1 + 1 + 256);  // with the first one of its step
}

TEST_CASE("a hub that starts again after a kill lists the alerts that the one before it has listed") {
  const JobPlace place;
  auto hub = std::make_unique<HubProcess>(place);
  std::string epoch;
  {
    HubPeer rank(place), client(place);
    rank.join(place, 0, 1);
    epoch = rank.epoch;
    AlertReport report;
    report.alerts.resize(2);
    report.alerts[1].message = "the second";
    rank.say(0, report);
    const auto file = place.output() / ".gradmon" / epoch / "alerts.jsonl";
    REQUIRE(eventually([&] { return read_alerts(file).size() == 2; }));
    hub->kill(SIGKILL);
    REQUIRE(hub->ended_within(std::chrono::seconds(10)));
  }
  hub = std::make_unique<HubProcess>(place);
  HubPeer rank(place), client(place);
  rank.join(place, 0, 1);
  CHECK(rank.epoch == epoch);
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
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer rank0(place), rank1(place), client(place);
  CHECK(rank0.join(place, 0, 2).takes_replicas);
  rank1.join(place, 1, 2);
  rank0.say(0, digests_of(rows_of(1.5, 3)));
  rank1.say(1, digests_of(rows_of(1.5, 3)));
  rank0.say(0, digests_of(rows_of(1.5, 4)));
  rank1.say(1, digests_of(rows_of(2.5, 4)));
  answer(rank0, 0, rows_of(1.5, 4));
  answer(rank1, 1, rows_of(2.5, 4));
  const auto found = rank1.hear<AlertReport>();
  REQUIRE(found);
  REQUIRE(found->alerts.size() == 1);
  CHECK(found->alerts[0].tag_name == "0:fc1.weight/rank1/param_updated");
  CHECK(found->alerts[0].step == 4);
  CHECK(client.ask(CommandVerb::alerts).alerts.empty());  // The rank itself reports it.
}

TEST_CASE("a rank speaks for itself alone, and one that sends invalid digests loses its connection alone") {
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer rank0(place), rank1(place), client(place);
  rank0.join(place, 0, 2);
  rank1.join(place, 1, 2);
  HubPeer liar(place);
  liar.epoch = rank0.epoch;
  liar.incarnation = rank0.incarnation;
  liar.introduce(place, 1, 2);
  liar.say(0, digests_of(rows_of(7, 1)));
  CHECK(liar.is_closed());
  ReplicaDigests broken = digests_of(rows_of(7, 1));
  broken.digests[0].buckets.resize(100);
  rank1.say(1, broken);
  CHECK(rank1.is_closed());
  rank0.say(0, Progress{});
  CHECK(rank0.hear<ProgressAck>());
}

TEST_CASE("a rank that floods the hub with digests does not keep it from answering") {
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer rank0(place), rank1(place), client(place);
  rank0.join(place, 0, 2);
  rank1.join(place, 1, 2);
  for (std::int64_t i = 0; i < 2'000; ++i) {
    ReplicaDigests digests{static_cast<std::uint64_t>(i % 7), 2, {}};
    for (std::int64_t k = 0; k < 20; ++k) digests.digests.push_back(fold_into_digest(rows_of(7, 20 * i + k)));
    rank1.say(1, digests);
  }
  rank0.say(0, Progress{});
  CHECK(rank0.hear<ProgressAck>());
  CHECK(client.ask(CommandVerb::alerts).alerts.empty());
}

}  // namespace

}  // namespace gradmon
