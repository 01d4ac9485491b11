// SPDX-License-Identifier: Apache-2.0
// spec/bad-input.md: what the wire may bring to rank 0 from ranks that are wrong
// or old, and what a plan is told that means nothing. (Random bytes, sizes,
// endpoints and keys: tests/control/net.)
#include <unistd.h>

#include <zmq.hpp>

#include "control/debian_version.h"
#include "control/net/process_identity.h"
#include "tests/badinput/rank_by_hand.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr Rank kOne{1};

AgentOptions of_two() {
  AgentOptions options;
  options.world_size = 2;
  return options;
}

Command command_of(CommandVerb verb) {
  Command command;
  command.verb = verb;
  command.request_id = random_hex(8);
  command.by = "tester";
  return command;
}

Ready ready_for(const Prepare& prepare, std::int64_t fence, std::int64_t matches = 1) {
  Ready ready;
  ready.revision = prepare.revision;
  ready.proposer = prepare.proposer;
  ready.config_sha256 = prepare.plan->config_sha256;
  ready.matches = matches;
  ready.fence = Step{fence};
  return ready;
}

// Once it is decided.
HistoryEntry decided(const LoneRank& job, Revision revision) {
  HistoryEntry found;
  REQUIRE(eventually([&] {
    for (const HistoryEntry& entry : job.ask(command_of(CommandVerb::history)).history) {
      if (entry.revision == revision) found = entry;
    }
    return !found.verdict.empty();
  }));
  return found;
}

std::string own_name() { return "pid " + std::to_string(getpid()) + " on " + host_name(); }

}  // namespace

TEST_CASE("a rank of another protocol version is refused and both are named") {
  const LoneRank job(of_two());
  RankByHand one(job, kOne);
  const std::string why =
      "rank 1 speaks protocol version 99, this job speaks " + std::to_string(kProtocolVersion);
  CHECK(one.say_hello(99).refused == why);
  job.ask(command_of(CommandVerb::on));
  const auto pending = job.ask().pending;
  REQUIRE(pending);
  CHECK(pending->reason == why);
  RankByHand repaired(job, kOne);
  repaired.join();
  CHECK(repaired.hear<Prepare>().plan->on);
}

TEST_CASE("a rank number that a living process has is refused and its holder named") {
  const LoneRank job(of_two());
  RankByHand one(job, kOne);
  one.join();
  RankByHand other(job, kOne);
  CHECK(other.say_hello().refused == "rank 1 is taken by " + own_name());
  RankByHand zero(job, Rank{0});
  zero.say(Hello{});
  CHECK(job.warning("1 message from the network dropped") ==
        "1 message from the network dropped; the last: a letter of no other rank of this job");
}

// An honest rank says the same twice where an answer was lost, so this is not
// counted: it must not matter.
TEST_CASE("what is said of an old revision or said twice changes nothing") {
  const LoneRank job(of_two());
  RankByHand one(job, kOne);
  one.join();
  job.ask(command_of(CommandVerb::on));
  const auto first = one.hear<Prepare>();
  one.say(Reject{first.revision, "not I"});
  REQUIRE(decided(job, first.revision).verdict == "abort");

  const Command on = command_of(CommandVerb::on);
  job.ask(on);
  auto second = one.hear<Prepare>();
  while (second.revision == first.revision) second = one.hear<Prepare>();
  one.say(Reject{first.revision, "not I"});
  one.say(ready_for(first, 7));
  one.say(ready_for(second, 50));
  one.say(ready_for(second, 9));
  const HistoryEntry entry = decided(job, second.revision);
  CHECK(entry.verdict == "commit");
  CHECK(entry.effective_step == 50);
  one.say(Reject{second.revision, "too late"});
  one.say(ready_for(second, 60));
  one.send_raw("x");  // Once this is counted the letters before it have been read.
  CHECK_FALSE(job.warning("1 message from the network dropped").empty());
  const std::size_t changes = job.ask(command_of(CommandVerb::history)).history.size();
  CHECK(job.ask(on).message == job.ask(on).message);  // A command that is sent again is no new one.
  const auto history = job.ask(command_of(CommandVerb::history)).history;
  CHECK(history.size() == changes);
  CHECK(history.back().verdict == "commit");
  CHECK(history.back().effective_step == 50);
}

TEST_CASE("a letter of another epoch changes nothing and its sender is named") {
  const LoneRank job(of_two());
  RankByHand one(job, kOne);
  one.join();
  const std::string epoch = std::exchange(one.epoch, "0123456789abcdef0123456789abcdef");
  one.say(Left{Step{5}});
  CHECK(job.warning("rank 1 of an earlier launch") ==
        "rank 1 of an earlier launch (epoch 01234567) still runs");
  CHECK(job.ask().ranks.at(1).state == "idle");
  one.epoch = epoch;
  one.incarnation += 1;  // That of a process which has not come yet.
  one.say(Left{Step{5}});
  one.send_raw("x");  // Once this is counted the letters before it have been read.
  CHECK_FALSE(job.warning("1 message from the network dropped").empty());
  CHECK(job.ask().ranks.at(1).state == "idle");
}

TEST_CASE("a message of a thousand frames is dropped and counted") {
  const LoneRank job;
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::linger, 1000);
  socket.connect(job.endpoint());
  for (int message = 0; message < 3; ++message) {
    for (int frame = 1; frame <= 1000; ++frame)
      socket.send(zmq::str_buffer("gradmon"),
                  frame < 1000 ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
  const std::string dropped = "3 messages from the network dropped";
  CHECK(job.warning(dropped) == dropped + "; the last: a message of several frames");
  CHECK(job.ask().mode == "dynamic");
}

TEST_CASE("a plan whose targets match on no rank is refused and one that matches on some is not") {
  for (const std::int64_t matches_on_one : {0, 3}) {
    LoneRank job(of_two(), 0);
    job.begin(Step{1});  // In the first step models may still come.
    RankByHand one(job, kOne);
    one.join();
    job.ask(command_of(CommandVerb::on));
    const auto prepare = one.hear<Prepare>();
    one.say(ready_for(prepare, 5, matches_on_one));
    const HistoryEntry entry = decided(job, prepare.revision);
    CHECK(entry.verdict == (matches_on_one == 0 ? "abort" : "commit"));
    CHECK(entry.reason == (matches_on_one == 0 ? "no target matches on any rank" : ""));
    CHECK(entry.final);
  }
}

}  // namespace gradmon
