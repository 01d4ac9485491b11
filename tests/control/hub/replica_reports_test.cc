// SPDX-License-Identifier: Apache-2.0
// A whole hub and what ranks tell it of values that they should have in common.
#include <string>

#include "control/alerts/replica_rows.h"
#include "control/debian_version.h"
#include "tests/control/hub/hub_process.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// The norm of one parameter after the update.
ReplicaRows rows_of(double norm, std::int64_t step) {
  auto targets = std::make_shared<ReplicaTargets>();
  targets->emplace_back(0, "fc1.weight");
  return {Revision{1}, step, Kind::param_updated, bit_of(Op::norm), std::move(targets), {norm}};
}

ReplicaDigests digests_of(const ReplicaRows& rows) { return {9, 2, {digest_of(rows)}}; }

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
    for (std::int64_t k = 0; k < 20; ++k) digests.digests.push_back(digest_of(rows_of(7, 20 * i + k)));
    rank1.say(1, digests);
  }
  rank0.say(0, Progress{});
  CHECK(rank0.hear<ProgressAck>());
  CHECK(client.ask(CommandVerb::alerts).alerts.empty());
}

}  // namespace
}  // namespace gradmon
