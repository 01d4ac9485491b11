// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/dry_run.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/support/golden.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/gradmonctl/fake_job.h"

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
  FakeJob job;
  job.answer(dry_run_reply({answer(0, 12), answer(1, 12), answer(2, 0), answer(3, 1)}));
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
  FakeJob job;
  job.answer(dry_run_reply(
      {answer(0, 12), answer(1, 0, "no room\x1b for it"), DryRunResult::Answer{Rank{2}, false, 0, "", {}}}));
  job.answer(match_counts_reply({12}));
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
  FakeJob job;
  job.answer(dry_run_reply({answer(0, 3), DryRunResult::Answer{Rank{1}, false, 0, "", {}}}));
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
  FakeJob job;
  job.answer(dry_run_reply({answer(0, 2), answer(1, 2)}));
  job.answer(match_counts_reply({0}));
  CHECK(dry_run(set_ops(), job.ask(), job.console()) == 0);
  CHECK(job.out.str().find("\nrank 0: 0 targets match\n"
                           "rank 1: did not report the number of matching targets\n") != std::string::npos);
}

TEST_CASE("a dry run that is refused or not answered ends with its exit code") {
  FakeJob job;
  job.answer(
      reply_with(CommandOutcome::invalid_config, "monitor_config.json:3:10: found 1, expected a list"));
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

}  // namespace
}  // namespace gradmon
