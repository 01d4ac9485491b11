// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"

namespace gradmon {
namespace {

TEST_CASE("history as text matches its golden file") {
  const std::string text = full_text(history_listing(sample_history()));
  CHECK(golden_difference("history.txt", text) == "");
}

TEST_CASE("a refused edit is one line with all its errors") {
  HistoryEntry refused;
  refused.verdict = "refused";
  refused.cause = "file";
  refused.by = "a.json";
  refused.reason = "a.json:1:2: one\na.json:3:4: two";
  const std::string text = full_text(history_listing({refused}));
  CHECK(text.find("  a.json  a.json:1:2: one; a.json:3:4: two\n") != std::string::npos);
  CHECK(text.find("  refused  -         file") != std::string::npos);  // "-": neither on nor off.
  CHECK(history_json({refused}, JsonLayout::one_line).find("\"on\":null") != std::string::npos);
}

TEST_CASE("a refused set asks for neither on nor off, and a refused on for on") {
  HistoryEntry refused;
  refused.verdict = "refused";
  refused.cause = "ctl";
  refused.reason = "set ops=[\"std\"]: no such op";
  CHECK(full_text(history_listing({refused})).find("  refused  -         ctl") != std::string::npos);
  CHECK(history_json({refused}, JsonLayout::one_line).find("\"on\":null") != std::string::npos);
  refused.on = true;
  CHECK(history_json({refused}, JsonLayout::one_line).find("\"on\":true") != std::string::npos);
}

TEST_CASE("a history without changes says so") { CHECK(full_text(history_listing({})) == "no change yet\n"); }

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
  FakeJob job{reply_with(CommandOutcome::not_allowed, "no")};
  CHECK(history_command(
            {}, job.ask(), [] { return sample_history(); }, job.console()) == 5);
  CHECK(job.out.str().empty());
}

}  // namespace
}  // namespace gradmon
