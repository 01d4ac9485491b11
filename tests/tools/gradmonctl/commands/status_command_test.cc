// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/status_command.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"
#include "tools/gradmonctl/commands/status_view.h"

namespace gradmon {
namespace {

CommandReply sample_reply() {
  CommandReply reply;
  reply.status = sample_status();
  return reply;
}

TEST_CASE("status is printed once as text or as JSON") {
  FakeJob job;
  job.answer(sample_reply());
  job.answer(sample_reply());
  CHECK(status_command({}, job.ask(), job.clock(), job.console()) == 0);
  CHECK(status_command({{}, false, true}, job.ask(), job.clock(), job.console()) == 0);
  CHECK(job.out.str() ==
        full_text(status_listing(sample_status())) + status_json(sample_status(), JsonLayout::indented));
  CHECK(job.err.str().empty());
}

TEST_CASE("status ends with the exit code of a refusal or of no answer") {
  FakeJob silent;
  CHECK(status_command({}, silent.ask(), silent.clock(), silent.console()) == 4);
  FakeJob closed;
  closed.answer(reply_with(CommandOutcome::not_allowed, "this key is not listed"));
  CHECK(status_command({}, closed.ask(), closed.clock(), closed.console()) == 5);
  CHECK(closed.err.str() == "gradmonctl: this key is not listed\n");
  FakeJob broken;
  broken.answer(reply_with(CommandOutcome::invalid_config, "a.json:1:2: one\na.json:3:4: two"));
  CHECK(status_command({}, broken.ask(), broken.clock(), broken.console()) == 6);
  CHECK(broken.err.str() == "gradmonctl: a.json:1:2: one\n  a.json:3:4: two\n");
  FakeJob empty;
  empty.answer({});
  CHECK(status_command({}, empty.ask(), empty.clock(), empty.console()) == 1);
}

TEST_CASE("status with --watch and --json prints one line each until the job is gone") {
  FakeJob job;
  for (int i = 0; i < 3; ++i) job.answer(sample_reply());
  CHECK(status_command({{}, true, true}, job.ask(), job.clock(), job.console()) == 4);
  const std::string line = status_json(sample_status(), JsonLayout::one_line);
  CHECK(job.out.str() == line + line + line);
}

TEST_CASE("status with --watch clears the screen only of a terminal that supports it") {
  FakeJob job;
  job.answer(sample_reply());
  status_command({{}, true, false}, job.ask(), job.clock(), job.console());
  CHECK(job.out.str() == full_text(status_listing(sample_status())) + "\n");
  FakeJob terminal;
  terminal.answer(sample_reply());
  status_command({{}, true, false}, terminal.ask(), terminal.clock(), {terminal.out, terminal.err, true});
  CHECK(terminal.out.str() == "\x1b[H\x1b[2J" + full_text(status_listing(sample_status())));
}

TEST_CASE("status with --watch ends when its output has no reader") {
  FakeJob job;
  job.answer(sample_reply());
  job.repeat_last_answer();
  job.out.setstate(std::ios::badbit);
  CHECK(status_command({{}, true, false}, job.ask(), job.clock(), job.console()) == 0);
}

}  // namespace
}  // namespace gradmon
