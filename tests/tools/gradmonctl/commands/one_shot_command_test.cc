// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/one_shot_command.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/tools/gradmonctl/fake_job.h"

namespace gradmon {
namespace {

TEST_CASE("cancel sends one command with an author and prints the answer") {
  FakeJob job;
  job.answer(reply_with(CommandOutcome::done, "no change is pending"));
  CHECK(one_shot_command({{}, CommandVerb::cancel}, job.ask(), job.console()) == 0);
  CHECK(job.err.str() == "gradmonctl: no change is pending\n");
  CHECK(job.out.str().empty());
  REQUIRE(job.asked.size() == 1);
  CHECK(job.asked[0].verb == CommandVerb::cancel);
  CHECK(job.asked[0].by.find(" pid ") != std::string::npos);
  CHECK(!job.asked[0].rank);
}

TEST_CASE("evict sends the rank and ends with 1 if the job does not know it") {
  FakeJob job;
  job.answer(reply_with(CommandOutcome::failed, "rank 9 is no member of this job"));
  CHECK(one_shot_command({{}, CommandVerb::evict, 9}, job.ask(), job.console()) == 1);
  CHECK(job.err.str() == "gradmonctl: rank 9 is no member of this job\n");
  REQUIRE(job.asked.size() == 1);
  CHECK(job.asked[0].rank == 9);
}

TEST_CASE("a command that is not allowed ends with 5 and one without an answer with 4") {
  FakeJob job;
  job.answer(reply_with(CommandOutcome::not_allowed, "no"));
  CHECK(one_shot_command({}, job.ask(), job.console()) == 5);
  CHECK(one_shot_command({}, job.ask(), job.console()) == 4);
}

}  // namespace
}  // namespace gradmon
