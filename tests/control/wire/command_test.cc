// SPDX-License-Identifier: Apache-2.0
#include "control/wire/command.h"

#include "control/debian_version.h"
#include "tests/control/wire/frame_round_trip.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("a command is decoded as it was sent") {
  Command sent;
  sent.verb = CommandVerb::evict;
  sent.request_id = "id";
  sent.by = "me";
  sent.at = 5;
  sent.collect_times = 0;
  sent.step_interval = 7;
  sent.edits = {{"/a/b", "1"}, {"", ""}};
  sent.config_text = "{}";
  sent.rank = 3;
  sent.after = 1ULL << 63;
  const Command back = frame_round_trip(sent);
  CHECK(back.verb == CommandVerb::evict);
  CHECK(back.request_id == "id");
  CHECK(back.by == "me");
  CHECK(back.at == 5);
  CHECK(back.collect_times == 0);
  CHECK(back.step_interval == 7);
  CHECK(back.edits == sent.edits);
  CHECK(back.config_text == "{}");
  CHECK(back.rank == 3);
  CHECK(back.after == 1ULL << 63);
  const Command bare = frame_round_trip(Command{});
  CHECK_FALSE((bare.at || bare.collect_times || bare.step_interval || bare.rank));
}

TEST_CASE("a command and an outcome of a later release are decoded as unknown and as failed") {
  Command later;
  later.verb = static_cast<CommandVerb>(static_cast<int>(CommandVerb::alerts) + 1);
  later.release = "9.9.9";
  later.force = true;
  const Command read = frame_round_trip(later);
  CHECK(read.verb == CommandVerb::unknown);
  CHECK(read.release == "9.9.9");
  CHECK(read.force);
  CommandReply reply;
  reply.outcome = static_cast<CommandOutcome>(99);
  CHECK(frame_round_trip(AddressedReply{"id", reply}).reply.outcome == CommandOutcome::failed);
}

TEST_CASE("a reply is decoded with all its fields") {
  CommandReply reply;
  reply.outcome = GENERATE(CommandOutcome::no_lead, CommandOutcome::incomplete);
  reply.message = "not in time";
  reply.revision = Revision{2};
  reply.settled = true;
  reply.applied_by_all = true;
  reply.effective_step = 70;
  reply.status = Status{};
  reply.status->launch_id = "launch";  // field_codec_test checks the other fields
  reply.history.resize(1);
  reply.config_text = "after";
  reply.config_before = "before";
  reply.rank_answers = {{Rank{3}, true, 7, "no", {}}};
  reply.rank_answers[0].targets.left_out = 6;
  reply.alerts.resize(2);
  reply.alerts[1].message = "\xff";
  reply.raised_alerts = 9;
  reply.collects_nothing = true;
  const AddressedReply addressed = frame_round_trip(AddressedReply{"id", reply});
  const CommandReply& back = addressed.reply;
  CHECK(addressed.request_id == "id");
  CHECK(back.outcome == reply.outcome);
  CHECK(back.message == "not in time");
  CHECK(back.revision == Revision{2});
  CHECK(back.settled);
  CHECK(back.applied_by_all);
  CHECK(back.effective_step == 70);
  REQUIRE(back.status);
  CHECK(back.status->launch_id == "launch");
  CHECK(back.history.size() == 1);
  CHECK(back.config_text == "after");
  CHECK(back.config_before == "before");
  REQUIRE(back.rank_answers.size() == 1);
  CHECK(back.rank_answers[0].rank == Rank{3});
  CHECK(back.rank_answers[0].known);
  CHECK(back.rank_answers[0].matches == 7);
  CHECK(back.rank_answers[0].objection == "no");
  CHECK(back.rank_answers[0].targets.left_out == 6);
  REQUIRE(back.alerts.size() == 2);
  CHECK(back.alerts[1].message == "\xff");
  CHECK(back.raised_alerts == 9);
  CHECK(back.collects_nothing);
  CHECK(frame_round_trip(*reply.status).launch_id == "launch");
}

TEST_CASE("an entry of the history is decoded with all its fields") {
  HistoryEntry entry;
  entry.revision = Revision{4};
  entry.cause = "ctl";
  entry.by = "somebody";
  entry.verdict = "commit";
  entry.reason = "why";
  entry.on = true;
  entry.proposed_at = 1'700'000;
  entry.effective_step = 50;
  entry.applied = {{0, 50}, {7, 51}};
  entry.finished_step = 90;
  entry.request_id = "r";
  entry.final = true;
  CommandReply reply;
  reply.history = {entry, HistoryEntry{}};
  const AddressedReply addressed = frame_round_trip(AddressedReply{"id", reply});
  REQUIRE(addressed.reply.history.size() == 2);
  const HistoryEntry& back = addressed.reply.history[0];
  CHECK(back.revision == Revision{4});
  CHECK(back.cause == "ctl");
  CHECK(back.by == "somebody");
  CHECK(back.verdict == "commit");
  CHECK(back.reason == "why");
  CHECK(back.on);
  CHECK(back.proposed_at == 1'700'000);
  CHECK(back.effective_step == 50);
  CHECK(back.applied == entry.applied);
  CHECK(back.finished_step == 90);
  CHECK(back.request_id == "r");
  CHECK(back.final);
  CHECK_FALSE(addressed.reply.history[1].final);
}

}  // namespace
}  // namespace gradmon
