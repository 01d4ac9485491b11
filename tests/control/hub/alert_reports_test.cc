// SPDX-License-Identifier: Apache-2.0
// A whole hub and the alert reports that reach it from ranks, honest and hostile.
#include "control/alerts/alert_report.h"

#include <signal.h>

#include <memory>
#include <string>

#include "control/debian_version.h"
#include "control/host/alert_file.h"
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

}  // namespace
}  // namespace gradmon
