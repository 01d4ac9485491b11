// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"

namespace gradmon {
namespace {

DryRunResult::Answer answer(int rank, std::int64_t matches, const std::string& objection = "") {
  return {Rank{rank}, true, matches, objection, {}};
}

CommandReply dry_run_reply(std::vector<DryRunResult::Answer> answers) {
  CommandReply reply;
  reply.status = Status{};
  reply.status->state = "on";
  reply.status->config_path = "/home/me/monitor_config.json";
  reply.config_before = "{\n  \"dynamic_on\": true,\n  \"ops\": [\"norm\"]\n}\n";
  reply.config_text = "{\n  \"dynamic_on\": true,\n  \"ops\": [\"norm\", \"nans\"]\n}\n";
  reply.rank_answers = std::move(answers);
  return reply;
}

ChangeRequest set_ops() {
  ChangeRequest request;
  request.command.verb = CommandVerb::set;
  request.command.edits = {{"ops", "[\"norm\", \"nans\"]"}};
  return request;
}

TEST_CASE("a dry run shows the lines that would change and what each rank would match") {
  FakeJob job{dry_run_reply({answer(0, 12), answer(1, 12), answer(2, 0), answer(3, 1)})};
  job.answer(match_counts_reply({12, 12, 0, 1}));  // to the second command of the dry run
  CHECK(dry_run(set_ops(), job.ask(), job.console()) == 0);
  CHECK(golden_difference("dry_run.txt", job.out.str()) == "");
  CHECK(job.err.str().empty());
  REQUIRE(job.asked.size() == 2);
  CHECK(job.asked[0].verb == CommandVerb::dry_run);
  CHECK(job.asked[0].edits == set_ops().command.edits);
  CHECK(job.asked[1].verb == CommandVerb::dry_run_targets);
  CHECK(job.asked[1].edits == set_ops().command.edits);
}

TEST_CASE("a dry run that a rank would reject ends with 1 and names the rank and the reason") {
  FakeJob job{dry_run_reply({answer(0, 12), answer(1, 0, "no room\x1b for it"),
                             DryRunResult::Answer{Rank{2}, false, 0, "", {}}}),
              match_counts_reply({12})};
  CHECK(dry_run(set_ops(), job.ask(), job.console()) == 1);
  CHECK(golden_difference("dry_run_rejected.txt", job.out.str()) == "");
  CHECK(job.err.str() == "gradmonctl: the job would reject it\n");
}

TEST_CASE("a dry run that would match nothing ends with 1") {
  FakeJob job;
  CommandReply reply = dry_run_reply({answer(0, 0), answer(1, 0)});
  job.answer(reply);
  job.answer(match_counts_reply({0, 0}));
  CHECK(dry_run(set_ops(), job.ask(), job.console()) == 1);
  reply.status->state = "off";
  job.answer(reply);
  CHECK(dry_run(set_ops(), job.ask(), job.console()) == 1);
  CHECK(job.err.str() ==
        "gradmonctl: the job would reject it: no target matches on any rank\n"
        "gradmonctl: the job would reject it once it is switched on: no target matches on any rank\n");
}

TEST_CASE("a dry run that some ranks do not answer ends with 7") {
  FakeJob job{dry_run_reply({answer(0, 3), DryRunResult::Answer{Rank{1}, false, 0, "", {}}})};
  CHECK(dry_run(set_ops(), job.ask(), job.console()) == 7);
}

TEST_CASE("a dry run reports warnings and a plan that is off and an unchanged file") {
  FakeJob job;
  CommandReply reply = dry_run_reply({answer(0, 3)});
  reply.status->state = "off";
  reply.status->warnings = {"monitor_config.json:2:3: unknown key \"x\""};
  reply.config_text = reply.config_before;
  job.answer(reply);
  job.answer(match_counts_reply({3}));
  CHECK(dry_run(set_ops(), job.ask(), job.console()) == 0);
  CHECK(job.out.str() == "/home/me/monitor_config.json: nothing would change\nrank 0: 3 targets match\n");
  CHECK(job.err.str() ==
        "warning: monitor_config.json:2:3: unknown key \"x\"\n"
        "gradmonctl: nothing is collected: dynamic_on is false\n");
}

TEST_CASE("a dry run shows the counts of the targets command") {
  FakeJob job{dry_run_reply({answer(0, 2), answer(1, 2)}), match_counts_reply({0})};
  CHECK(dry_run(set_ops(), job.ask(), job.console()) == 0);
  CHECK(job.out.str().find("\nrank 0: 0 targets match\n"
                           "rank 1: did not report the number of matching targets\n") != std::string::npos);
}

TEST_CASE("a dry run that is refused or not answered ends with its exit code") {
  FakeJob job{
      reply_with(CommandOutcome::invalid_config, "monitor_config.json:3:10: found 1, expected a list")};
  CHECK(dry_run(set_ops(), job.ask(), job.console()) == 6);
  job.answer({});
  CHECK(dry_run(set_ops(), job.ask(), job.console()) == 1);
  job.stay_silent();
  CHECK(dry_run(set_ops(), job.ask(), job.console()) == 4);
}

TEST_CASE("a dry run of a file validates the result and writes nothing") {
  TemporaryDirectory directory;
  ChangeRequest request = set_ops();
  request.file = (directory / "config.json").string();
  write_text(request.file, "{\"ops\": [\"norm\"]}\n");
  FakeJob job;
  CHECK(dry_run_of_file(request, job.console()) == 0);
  CHECK(job.out.str() ==
        request.file + "\nline 1:\n- {\"ops\": [\"norm\"]}\n+ {\"ops\": [\"norm\", \"nans\"]}\n");
  CHECK(job.err.str() == "gradmonctl: no job was asked which targets match\n");
  CHECK(read_text(request.file) == "{\"ops\": [\"norm\"]}\n");

  request.command.edits = {{"ops", "1"}};
  CHECK(dry_run_of_file(request, job.console()) == 6);
  request.command.edits = {{"/ops/x/y", "1"}};
  CHECK(dry_run_of_file(request, job.console()) == 6);
  write_text(request.file, "{]");
  CHECK(dry_run_of_file(request, job.console()) == 6);
  request.file += "x";
  CHECK(dry_run_of_file(request, job.console()) == 1);
}

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
  FakeJob job{{}};
  CHECK(run(job, turn_on(false)) == 0);
  CHECK(job.asked.size() == 1);
  CHECK(job.out.str().empty());
}

TEST_CASE("each change has its own request id and an author") {
  FakeJob job{{}, {}};
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
  FakeJob job{{}, {}, agreed_reply(1200, false), agreed_reply(1200, true)};
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
  FakeJob job{reply_with(CommandOutcome::done, "the config file was not changed: read-only"),
              agreed_reply(1200, true)};
  CHECK(run(job, turn_on(true)) == 0);
  CHECK(job.out.str() == "1200\n");
  CHECK(job.err.str() == "gradmonctl: the config file was not changed: read-only\n");
}

TEST_CASE("a refusal ends with the job's outcome as exit code") {
  const auto outcome = GENERATE(CommandOutcome::failed, CommandOutcome::not_allowed,
                                CommandOutcome::invalid_config, CommandOutcome::incomplete);
  const bool wait = GENERATE(false, true);
  FakeJob job{reply_with(outcome, "because")};
  CHECK(run(job, turn_on(wait)) == static_cast<int>(outcome));
  CHECK(job.err.str() == "gradmonctl: because\n");
  CHECK(job.out.str().empty());
}

TEST_CASE("a superseded change ends with 1 and names the newer change") {
  FakeJob job{{}};
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
  FakeJob gone{{}};
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
  CHECK(job.err.str() ==
        "gradmonctl: pending: waiting for rank 3\ngradmonctl: not agreed within 60 s: waiting for rank 3\n");
  CHECK(job.out.str().empty());
}

TEST_CASE("while it waits it says why, once for each reason") {
  FakeJob job{{}};
  const auto pending = [&](const std::string& reason) {  // for a second of waiting
    CommandReply reply;
    if (!reason.empty()) {
      reply.status = Status{};
      reply.status->pending = Pending{Revision{7}, reason, 0};
    }
    for (int poll = 0; poll < 21; ++poll) job.answer(reply);
  };
  for (const char* reason :
       {"takes effect at step 12", "takes effect at step 12", "rank 0 has not stepped for 5 s", "",
        "rank 0 has not stepped for 6 s", "waiting for the answers of ranks 0-3\x1b"})
    pending(reason);
  job.answer(agreed_reply(1200, true));
  CHECK(run(job, turn_on(true)) == 0);
  CHECK(job.out.str() == "1200\n");
  CHECK(job.err.str() ==
        "gradmonctl: pending: takes effect at step 12\n"
        "gradmonctl: pending: rank 0 has not stepped for 5 s\n"
        "gradmonctl: pending: waiting for the answers of ranks 0-3\\x1b\n");
}

TEST_CASE("a change that is applied within a second asks for no reason") {
  FakeJob job;
  for (int poll = 0; poll < 15; ++poll) job.answer({});
  job.answer(agreed_reply(1200, true));
  CHECK(run(job, turn_on(true)) == 0);
  CHECK(std::none_of(job.asked.begin(), job.asked.end(),
                     [](const Command& command) { return command.verb == CommandVerb::status; }));
}

TEST_CASE("a verdict that not every rank applies in time ends with 7 and names the step") {
  FakeJob job{agreed_reply(1200, false)};
  job.repeat_last_answer();
  CHECK(run(job, turn_on(true)) == 7);
  CHECK(job.err.str() == "gradmonctl: agreed for step 1200, but not applied by every rank within 60 s\n");
}

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

TEST_CASE("cancel sends one command with an author and prints the answer") {
  FakeJob job{reply_with(CommandOutcome::done, "no change is pending")};
  CHECK(one_shot_command({{}, CommandVerb::cancel}, job.ask(), job.console()) == 0);
  CHECK(job.err.str() == "gradmonctl: no change is pending\n");
  CHECK(job.out.str().empty());
  REQUIRE(job.asked.size() == 1);
  CHECK(job.asked[0].verb == CommandVerb::cancel);
  CHECK(job.asked[0].by.find(" pid ") != std::string::npos);
  CHECK(!job.asked[0].rank);
}

TEST_CASE("a command that is not allowed ends with 5 and one without an answer with 4") {
  FakeJob job{reply_with(CommandOutcome::not_allowed, "no")};
  CHECK(one_shot_command({}, job.ask(), job.console()) == 5);
  CHECK(one_shot_command({}, job.ask(), job.console()) == 4);
}

}  // namespace
}  // namespace gradmon
