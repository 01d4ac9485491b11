// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/job.h"

#include "tests/support/catch.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tools/gradmonctl/commands/commands.h"

namespace gradmon {
namespace {

ChangeRequest set_request(std::size_t bytes) {
  ChangeRequest request;
  request.command.verb = CommandVerb::set;
  request.command.edits = {{"format", '"' + std::string(bytes, 'x') + '"'}};
  return request;
}

TEST_CASE("an edit too large for a message is not sent and ends with 1 and both sizes") {
  FakeJob job;
  CHECK(change_command(set_request(3'000'000), bounded_ask(job.ask()), job.clock(), job.console()) == 1);
  CHECK(job.asked.empty());
  CHECK(job.err.str().find("gradmonctl: too large: the command takes 3000") == 0);
  CHECK(job.err.str().find(" bytes, a job accepts 2162688; nothing was sent\n") != std::string::npos);
}

constexpr std::chrono::milliseconds kTime{5000};

CommandReply no_lead() {
  return reply_with(CommandOutcome::no_lead, "no rank of this job has connected yet");
}

TEST_CASE("a hub without a lead is asked again with the same command until it has one") {
  FakeJob job{no_lead(), no_lead(), reply_with(CommandOutcome::done, "here")};
  const auto begun = job.clock().now();
  const auto reply = patient_ask(job.ask(), job.clock())(make_command(CommandVerb::on), kTime);
  REQUIRE(reply);
  CHECK(reply->message == "here");
  REQUIRE(job.asked.size() == 3);
  CHECK(job.asked[2].request_id == job.asked[0].request_id);
  CHECK(job.clock().now() - begun < std::chrono::seconds(1));
}

TEST_CASE("a hub that stays without a lead gives no answer but its reason, in the time given") {
  FakeJob job{no_lead()};
  job.repeat_last_answer();
  const auto begun = job.clock().now();
  const auto reply = patient_ask(job.ask(), job.clock())(make_command(CommandVerb::on), kTime);
  REQUIRE_FALSE(reply);
  CHECK(reply.error() == "no rank of this job has connected yet");
  CHECK(job.clock().now() - begun <= kTime);
  CHECK(job.clock().now() - begun > kTime / 2);
}

TEST_CASE("every other answer, and none, is handed on at once") {
  FakeJob job{reply_with(CommandOutcome::failed, "superseded")};
  job.stay_silent();
  const AskJob ask = patient_ask(job.ask(), job.clock());
  CHECK(ask(make_command(CommandVerb::on), kTime)->outcome == CommandOutcome::failed);
  CHECK_FALSE(ask(make_command(CommandVerb::on), kTime));
  CHECK(job.asked.size() == 2);
}

CommandReply reply_of(const std::string& release) {
  CommandReply reply;
  reply.release = release;
  return reply;
}

std::string said(FakeJob& job, const std::vector<CommandVerb>& verbs) {
  const AskJob ask = name_other_release(job.ask(), job.console());
  for (const CommandVerb verb : verbs) static_cast<void>(ask(make_command(verb), kAnswerTime));
  return job.err.str();
}

TEST_CASE("a command for a job of another release says both, once, and status and off say nothing") {
  FakeJob job{reply_of("9.9.9")};
  job.repeat_last_answer();
  CHECK(said(job, {CommandVerb::status, CommandVerb::off, CommandVerb::verdict}).empty());
  CHECK(
      said(job, {CommandVerb::on, CommandVerb::verdict, CommandVerb::history}) ==
      "gradmonctl: this is gradmonctl " + own_release() +
          ", and the job runs gradmon 9.9.9: status and off work between releases, everything else as far as "
          "both know it\n");
}

TEST_CASE("a job of this release is not named") {
  FakeJob job{{}};
  CHECK(said(job, {CommandVerb::on}).empty());
}

TEST_CASE("where a job does not answer a command its status has the release") {
  FakeJob job;
  job.stay_silent();
  job.answer(reply_of(""));
  CHECK(said(job, {CommandVerb::alerts}).find("runs an earlier gradmon, which does not tell its version") !=
        std::string::npos);
  CHECK(job.asked.back().verb == CommandVerb::status);
}

}  // namespace
}  // namespace gradmon
