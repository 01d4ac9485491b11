// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/change_command.h"

#include <algorithm>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"

namespace gradmon {
namespace {

ChangeRequest turn_on(bool wait) {
  ChangeRequest request;
  request.command.verb = CommandVerb::on;
  request.wait = wait;
  return request;
}

CommandReply agreed_reply(std::int64_t step, bool applied_by_all) {
  CommandReply reply;
  reply.revision = Revision{7};
  reply.settled = true;
  reply.effective_step = step;
  reply.applied_by_all = applied_by_all;
  return reply;
}

int run(FakeJob& job, const ChangeRequest& request) {
  return change_command(request, job.ask(), job.clock(), job.console());
}

TEST_CASE("without --wait one command is sent") {
  FakeJob job;
  job.answer({});
  CHECK(run(job, turn_on(false)) == 0);
  CHECK(job.asked.size() == 1);
  CHECK(job.out.str().empty());
}

TEST_CASE("each change has its own request id and an author") {
  FakeJob job;
  job.answer({});
  job.answer({});
  ChangeRequest request = turn_on(false);
  request.command.at = 1200;
  run(job, request);
  run(job, request);
  REQUIRE(job.asked.size() == 2);
  CHECK(job.asked[0].verb == CommandVerb::on);
  CHECK(job.asked[0].at == 1200);
  CHECK(job.asked[0].request_id.size() == 32);
  CHECK(job.asked[0].request_id != job.asked[1].request_id);
  CHECK(job.asked[0].by.find('@') != std::string::npos);
  CHECK(job.asked[0].by.find(" pid ") != std::string::npos);
}

TEST_CASE("waiting asks for the verdict until every rank has applied it and prints the step") {
  FakeJob job;
  job.answer({});
  job.answer({});
  job.answer(agreed_reply(1200, false));
  job.answer(agreed_reply(1200, true));
  CHECK(run(job, turn_on(true)) == 0);
  CHECK(job.out.str() == "1200\n");
  CHECK(job.err.str().empty());
  REQUIRE(job.asked.size() == 4);
  CHECK(std::all_of(job.asked.begin() + 1, job.asked.end(), [&](const Command& command) {
    return command.verb == CommandVerb::verdict && command.request_id == job.asked[0].request_id;
  }));
}

TEST_CASE("waiting for a change that is not needed says so and prints no step") {
  FakeJob job;
  CommandReply reply = agreed_reply(-1, true);
  reply.message = "already off";
  job.answer(reply);
  CHECK(run(job, turn_on(true)) == 0);
  CHECK(job.out.str().empty());
  CHECK(job.err.str() == "gradmonctl: already off\n");
}

TEST_CASE("the job's message is printed even with --wait") {
  FakeJob job;
  job.answer(reply_with(CommandOutcome::done, "the config file was not changed: read-only"));
  job.answer(agreed_reply(1200, true));
  CHECK(run(job, turn_on(true)) == 0);
  CHECK(job.out.str() == "1200\n");
  CHECK(job.err.str() == "gradmonctl: the config file was not changed: read-only\n");
}

TEST_CASE("a refusal ends with the job's outcome as exit code") {
  const auto outcome = GENERATE(CommandOutcome::failed, CommandOutcome::not_allowed,
                                CommandOutcome::invalid_config, CommandOutcome::incomplete);
  const bool wait = GENERATE(false, true);
  FakeJob job;
  job.answer(reply_with(outcome, "because"));
  CHECK(run(job, turn_on(wait)) == static_cast<int>(outcome));
  CHECK(job.err.str() == "gradmonctl: because\n");
  CHECK(job.out.str().empty());
}

TEST_CASE("a superseded change ends with 1 and names the newer change") {
  FakeJob job;
  job.answer({});
  CommandReply reply = reply_with(CommandOutcome::failed, "superseded by a newer change (me@host pid 1)");
  reply.settled = true;
  job.answer(reply);
  CHECK(run(job, turn_on(true)) == 1);
  CHECK(job.err.str() == "gradmonctl: superseded by a newer change (me@host pid 1)\n");
}

TEST_CASE("a job that does not answer ends with 4") {
  FakeJob silent;
  CHECK(run(silent, turn_on(false)) == 4);
  CHECK(silent.err.str() == "gradmonctl: no answer\n");
  FakeJob gone;
  gone.answer({});
  CHECK(run(gone, turn_on(true)) == 4);
}

TEST_CASE("no verdict in time ends with 7 and the reason of the pending change") {
  FakeJob job;
  CommandReply reply;
  reply.status = Status{};
  reply.status->pending = Pending{Revision{7}, "waiting for rank 3", 0};
  job.answer(reply);
  job.repeat_last_answer();
  CHECK(run(job, turn_on(true)) == 7);
  CHECK(job.err.str() == "gradmonctl: not agreed within 60 s: waiting for rank 3\n");
  CHECK(job.out.str().empty());
}

TEST_CASE("a verdict that not every rank applies in time ends with 7 and names the step") {
  FakeJob job;
  job.answer(agreed_reply(1200, false));
  job.repeat_last_answer();
  CHECK(run(job, turn_on(true)) == 7);
  CHECK(job.err.str() == "gradmonctl: agreed for step 1200, but not applied by every rank within 60 s\n");
}

namespace {

CommandReply in_force(Status status, const char* config) {
  CommandReply reply;
  reply.status = std::move(status);
  reply.config_text = config;
  return reply;
}

std::string outlook(FakeJob job) {
  report_outlook(job.ask(), job.clock(), job.console());
  return job.err.str();
}

}  // namespace

TEST_CASE("on without a number of steps says how long it goes on and what it writes a minute") {
  FakeJob job;
  Status waiting = sample_status();
  waiting.pending = Pending{Revision{8}, "waiting for rank 3", 0};
  job.answer(in_force(waiting, "{}"));
  job.answer(in_force(sample_status(), R"({"ops": ["norm", "max"]})"));
  CHECK(outlook(std::move(job)) ==
        "gradmonctl: collects one step in 2, 5 times, for about 91 ms; about 188852 rows a minute "
        "(14 MiB in CSV): up to 96 in a collected step, on all ranks\n");
}

TEST_CASE("a collection without an end is said to go on until off") {
  FakeJob job;
  Status status = sample_status();
  status.collect_times = 100'000'000;
  status.step_interval = 1;
  job.answer(in_force(status, R"({"format": "sqlite"})"));
  CHECK(outlook(std::move(job)) ==
        "gradmonctl: collects every step until gradmonctl off; about 377705 rows a minute: up to 96 in a "
        "collected step, on all ranks\n");
}

TEST_CASE(
    "figures that the job does not know within three seconds are unknown, and a job that is off says "
    "nothing") {
  FakeJob job;
  Status status = sample_status();
  for (RankStatus& rank : status.ranks) rank.step_ms = 0;
  job.answer(in_force(status, "{}"));
  job.repeat_last_answer();
  CHECK(outlook(std::move(job)) ==
        "gradmonctl: collects one step in 2, 5 times, for a time unknown so far; how much it writes is "
        "unknown so far\n");
  FakeJob off;
  status.state = "off";
  off.answer(in_force(status, "{}"));
  CHECK(outlook(std::move(off)).empty());
}

TEST_CASE("control characters in a job's message are escaped") {
  FakeJob job;
  job.answer(reply_with(CommandOutcome::failed, "a\x1b[2Jb"));
  run(job, turn_on(false));
  CHECK(job.err.str() == "gradmonctl: a\\x1b[2Jb\n");
}

}  // namespace
}  // namespace gradmon
