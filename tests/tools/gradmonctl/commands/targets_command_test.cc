// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"

namespace gradmon {
namespace {

DryRunResult::Answer rank_answer(int rank, TargetList list) {
  return {Rank{rank}, true, list.counts.watched, "", std::move(list)};
}

TargetList whole_list() {
  TargetList list;
  list.counts = {4, 2, 2};
  list.attached = {"Net: gradmon.deepspeed, deepspeed 0.19.8", "Adam\x1bW: gradmon.Monitor"};
  list.unmatched = {{"fc9", {"fc1", "fc2"}, ""}, {"fc[", {}, "missing ]: ["}};
  list.targets = {{"grad_reduced", "fc1.weight", 1204, kSampleTime, 0, ""},
                  {"grad_reduced", "fc1.bias", -1, 0, 12, "frozen"},
                  {"grad_reduced", "fc2.weight", 1198, kSampleTime - 3000, 1, ""},
                  {"grad_reduced", "fc2.bias", -1, 0, 0, ""}};
  return list;
}

TargetList silent_targets_only() {
  TargetList list;
  list.counts = {24, 1, 0};
  list.targets = {{"actv", "evil\x1b[31m", -1, 0, 3, "not in the graph"}};
  list.left_out = 23;
  return list;
}

CommandReply targets_reply() {
  CommandReply reply;
  reply.status = Status{};
  reply.status->state = "on";
  TargetList well;
  well.counts = {24, 0, 0};
  well.left_out = 24;
  reply.rank_answers = {rank_answer(0, whole_list()), rank_answer(1, silent_targets_only()),
                        rank_answer(2, well), rank_answer(3, well)};
  return reply;
}

// Queues the two replies about matching targets: the job's config, and the count of each rank.
void queue_match_counts(FakeJob& job, const std::vector<std::int64_t>& matching) {
  CommandReply config;
  config.config_text = "{}";
  job.answer(config);
  job.answer(match_counts_reply(matching));
}

TargetsRequest dry_run_request(const std::string& file) {
  TargetsRequest request;
  request.dry_run = true;
  request.file = file;
  return request;
}

TEST_CASE("targets as text match their golden file") {
  FakeJob job{targets_reply()};
  queue_match_counts(job, {2, 12, 12, 12});
  CHECK(targets_command({}, job.ask(), job.console()) == 0);
  CHECK(golden_difference("targets.txt", job.out.str()) == "");
  CHECK(job.err.str().empty());
  REQUIRE(job.asked.size() == 3);
  CHECK(job.asked[0].verb == CommandVerb::targets);
  CHECK(job.asked[2].verb == CommandVerb::dry_run_targets);
  CHECK(job.asked[2].config_text == "{}");
}

TEST_CASE("targets as JSON match their golden file") {
  FakeJob job;
  CommandReply reply = targets_reply();
  reply.rank_answers.pop_back();
  job.answer(reply);
  queue_match_counts(job, {2, 12});  // Rank 2 reports no count.
  TargetsRequest request;
  request.json = true;
  CHECK(targets_command(request, job.ask(), job.console()) == 0);
  CHECK(golden_difference("targets.json", job.out.str()) == "");
}

TEST_CASE("a rank without an answer ends targets with 7") {
  FakeJob job;
  CommandReply reply = targets_reply();
  reply.rank_answers[2] = DryRunResult::Answer{Rank{2}, false, 0, "", {}};
  job.answer(reply);
  CHECK(targets_command({}, job.ask(), job.console()) == 7);
  CHECK(job.out.str().find("rank 2: no answer\n") != std::string::npos);
}

TEST_CASE("targets says why nothing is collected") {
  FakeJob job;
  CommandReply reply = targets_reply();
  reply.status->state = "off";
  reply.status->reason = "finished";
  job.answer(reply);
  CHECK(targets_command({}, job.ask(), job.console()) == 0);
  CHECK(job.err.str() == "gradmonctl: nothing is collected: finished\n");
}

TEST_CASE("targets with --dry-run reports warnings and a config that is off") {
  FakeJob job;
  CommandReply reply = targets_reply();
  reply.status->state = "off";
  reply.status->warnings = {"monitor_config.json:2:3: unknown key \"x\""};
  for (DryRunResult::Answer& answer : reply.rank_answers) {
    for (TargetStatus& target : answer.targets.targets) target = {target.kind, target.name, -1, 0, 0, ""};
  }
  job.answer(reply);
  TargetsRequest request = dry_run_request("");
  request.edits = {{"targets", "{\"fc1\": {}}"}};
  CHECK(targets_command(request, job.ask(), job.console()) == 0);
  REQUIRE_FALSE(job.asked.empty());
  CHECK(job.asked[0].verb == CommandVerb::dry_run_targets);
  CHECK(job.asked[0].edits == request.edits);
  CHECK(job.out.str().find("rank 0: 4 targets match, ") == 0);
  CHECK(job.err.str() ==
        "warning: monitor_config.json:2:3: unknown key \"x\"\n"
        "gradmonctl: nothing is collected: dynamic_on is false\n");
}

TEST_CASE("targets with --dry-run ends with 1 if a rank rejects the config or nothing matches") {
  FakeJob job;
  CommandReply reply = targets_reply();
  reply.rank_answers = {DryRunResult::Answer{Rank{0}, true, 0, "", {}}};
  job.answer(reply);
  CHECK(targets_command(dry_run_request(""), job.ask(), job.console()) == 1);
  reply.rank_answers = {DryRunResult::Answer{Rank{0}, true, 0, "no such format", {}}};
  job.answer(reply);
  CHECK(targets_command(dry_run_request(""), job.ask(), job.console()) == 1);
  CHECK(job.out.str().find("rank 0: rejects it: no such format\n") != std::string::npos);
}

TEST_CASE("targets with --config validates the file and sends the whole text") {
  TemporaryDirectory directory;
  const std::string file = (directory / "other.json").string();
  write_text(file, "{\"targets\": {\"fc1\": {}}, \"dynamic_on\": true}\n");
  FakeJob job{targets_reply()};
  CHECK(targets_command(dry_run_request(file), job.ask(), job.console()) == 0);
  REQUIRE(job.asked.size() == 1);
  CHECK(job.asked[0].config_text == read_text(file));
  write_text(file, "{]");
  CHECK(targets_command(dry_run_request(file), job.ask(), job.console()) == 6);
  CHECK(job.asked.size() == 1);
  write_text(file, "{}" + std::string(500'000, ' '));
  job.answer(targets_reply());
  CHECK(targets_command(dry_run_request(file), job.ask(), job.console()) == 0);
  REQUIRE(job.asked.size() == 2);
  CHECK(job.asked[1].config_text == read_text(file));
}

TEST_CASE("targets ends with the exit code of a refusal or of no answer") {
  FakeJob job{reply_with(CommandOutcome::not_allowed, "no")};
  CHECK(targets_command({}, job.ask(), job.console()) == 5);
  job.answer({});
  CHECK(targets_command({}, job.ask(), job.console()) == 1);
  job.stay_silent();
  CHECK(targets_command({}, job.ask(), job.console()) == 4);
}

}  // namespace
}  // namespace gradmon
