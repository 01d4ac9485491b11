// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/connect.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/tools/gradmonctl/fake_job.h"

namespace gradmon {
namespace {

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
  FakeJob job;
  job.answer(reply_of("9.9.9"));
  job.repeat_last_answer();
  CHECK(said(job, {CommandVerb::status, CommandVerb::off, CommandVerb::verdict}).empty());
  CHECK(
      said(job, {CommandVerb::on, CommandVerb::verdict, CommandVerb::history}) ==
      "gradmonctl: this is gradmonctl " + own_release() +
          ", and the job runs gradmon 9.9.9: status and off work between releases, everything else as far as "
          "both know it\n");
}

TEST_CASE("a job of this release is not named") {
  FakeJob job;
  job.answer({});
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
