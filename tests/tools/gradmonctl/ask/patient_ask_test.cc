// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/patient_ask.h"

#include "control/debian_version.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr std::chrono::milliseconds kTime{5000};

CommandReply no_lead() {
  return reply_with(CommandOutcome::no_lead, "no rank of this job has connected yet");
}

TEST_CASE("a hub without a lead is asked again with the same command until it has one") {
  FakeJob job;
  job.answer(no_lead());
  job.answer(no_lead());
  job.answer(reply_with(CommandOutcome::done, "here"));
  const auto begun = job.clock().now();
  const auto reply = patient_ask(job.ask(), job.clock())(make_command(CommandVerb::on), kTime);
  REQUIRE(reply);
  CHECK(reply->message == "here");
  REQUIRE(job.asked.size() == 3);
  CHECK(job.asked[2].request_id == job.asked[0].request_id);
  CHECK(job.clock().now() - begun < std::chrono::seconds(1));
}

TEST_CASE("a hub that stays without a lead gives no answer but its reason, in the time given") {
  FakeJob job;
  job.answer(no_lead());
  job.repeat_last_answer();
  const auto begun = job.clock().now();
  const auto reply = patient_ask(job.ask(), job.clock())(make_command(CommandVerb::on), kTime);
  REQUIRE_FALSE(reply);
  CHECK(reply.error() == "no rank of this job has connected yet");
  CHECK(job.clock().now() - begun <= kTime);
  CHECK(job.clock().now() - begun > kTime / 2);
}

TEST_CASE("every other answer, and none, is handed on at once") {
  FakeJob job;
  job.answer(reply_with(CommandOutcome::failed, "superseded"));
  job.stay_silent();
  const AskJob ask = patient_ask(job.ask(), job.clock());
  CHECK(ask(make_command(CommandVerb::on), kTime)->outcome == CommandOutcome::failed);
  CHECK_FALSE(ask(make_command(CommandVerb::on), kTime));
  CHECK(job.asked.size() == 2);
}

}  // namespace
}  // namespace gradmon
