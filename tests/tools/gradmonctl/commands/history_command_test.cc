// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/history_command.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"
#include "tools/gradmonctl/commands/history_view.h"

namespace gradmon {
namespace {

tl::expected<std::vector<HistoryEntry>, std::string> no_files() {
  return tl::unexpected(std::string("no files"));
}

TEST_CASE("history prints the job's answer") {
  FakeJob job;
  CommandReply reply;
  reply.history = sample_history();
  job.answer(reply);
  job.answer(reply);
  CHECK(history_command({}, job.ask(), no_files, job.console()) == 0);
  CHECK(history_command({{}, true}, job.ask(), no_files, job.console()) == 0);
  CHECK(job.out.str() ==
        full_text(history_listing(sample_history())) + history_json(sample_history(), JsonLayout::indented));
  CHECK(job.err.str().empty());
}

TEST_CASE("history of a job that does not answer comes from its files") {
  FakeJob job;
  CHECK(history_command(
            {}, job.ask(), [] { return sample_history(); }, job.console()) == 0);
  CHECK(job.out.str() == full_text(history_listing(sample_history())));
  CHECK(job.err.str() == "gradmonctl: no answer; showing the history from the job's files\n");
}

TEST_CASE("history without job and files ends with 4") {
  FakeJob job;
  CHECK(history_command({}, job.ask(), no_files, job.console()) == 4);
  CHECK(job.err.str() == "gradmonctl: no answer; no files\n");
}

TEST_CASE("the files do not replace a history that the job refuses") {
  FakeJob job;
  job.answer(reply_with(CommandOutcome::not_allowed, "no"));
  CHECK(history_command(
            {}, job.ask(), [] { return sample_history(); }, job.console()) == 5);
  CHECK(job.out.str().empty());
}

}  // namespace
}  // namespace gradmon
