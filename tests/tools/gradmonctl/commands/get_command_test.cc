// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/get_command.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/support/temporary_directory.h"
#include "tests/tools/gradmonctl/fake_job.h"

namespace gradmon {
namespace {

CommandReply config_reply(const std::string& text) {
  CommandReply reply;
  reply.status = Status{};
  reply.config_text = text;
  return reply;
}

GetRequest get(const std::string& key) { return {{}, key, ""}; }

TEST_CASE("without a key the job's config is printed unchanged") {
  FakeJob job;
  job.answer(config_reply("{\r\n  \"eps\" : 1 }"));
  CHECK(get_command(get(""), job.ask(), job.console()) == 0);
  REQUIRE(job.asked.size() == 1);
  CHECK(job.asked[0].verb == CommandVerb::config);
  CHECK(job.out.str() == "{\r\n  \"eps\" : 1 }\n");
  CHECK(job.err.str().empty());
}

TEST_CASE("one value is printed alone") {
  FakeJob job;
  job.answer(config_reply("{\"eps\": 0.5}\n"));
  CHECK(get_command(get("eps"), job.ask(), job.console()) == 0);
  CHECK(job.out.str() == "0.5\n");
}

TEST_CASE("an unknown key is a usage error") {
  FakeJob job;
  job.answer(config_reply("{}"));
  CHECK(get_command(get("epss"), job.ask(), job.console()) == 2);
  CHECK(job.out.str().empty());
  CHECK(job.err.str() == "gradmonctl: unknown key \"epss\" (did you mean \"eps\"?)\n");
}

TEST_CASE("a pending change is mentioned beside the value in force") {
  FakeJob job;
  CommandReply reply = config_reply("{\"eps\": 0.5}");
  reply.status->pending = Pending{Revision{3}, "waiting for rank 3", 0};
  job.answer(reply);
  CHECK(get_command(get("eps"), job.ask(), job.console()) == 0);
  CHECK(job.out.str() == "0.5\n");
  CHECK(job.err.str() == "gradmonctl: a change is pending: waiting for rank 3\n");
}

TEST_CASE("get fails with the reason if the job has no config or does not answer") {
  FakeJob job;
  job.answer(reply_with(CommandOutcome::failed, "the job has no valid config yet"));
  CHECK(get_command(get(""), job.ask(), job.console()) == 1);
  job.answer({});
  CHECK(get_command(get(""), job.ask(), job.console()) == 1);
  job.stay_silent();
  CHECK(get_command(get(""), job.ask(), job.console()) == 4);
  CHECK(job.err.str() ==
        "gradmonctl: the job has no valid config yet\n"
        "gradmonctl: the job's answer has no config\n"
        "gradmonctl: no answer\n");
}

TEST_CASE("get reads a file without a job and validates it first") {
  TemporaryDirectory directory;
  const std::string file = (directory / "config.json").string();
  FakeJob job;
  write_text(file, "{\"eps\": 0.5}\n");
  CHECK(get_from_file({{}, "eps", file}, job.console()) == 0);
  CHECK(job.out.str() == "0.5\n");
  write_text(file, "{\"eps\": 0}");
  CHECK(get_from_file({{}, "eps", file}, job.console()) == 6);
  CHECK(get_from_file({{}, "eps", file + "x"}, job.console()) == 1);
}

}  // namespace
}  // namespace gradmon
