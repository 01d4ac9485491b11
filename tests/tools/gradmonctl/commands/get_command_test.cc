// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tools/gradmonctl/commands/config_text.h"

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
  FakeJob job{config_reply("{\r\n  \"eps\" : 1 }")};
  CHECK(get_command(get(""), job.ask(), job.console()) == 0);
  REQUIRE(job.asked.size() == 1);
  CHECK(job.asked[0].verb == CommandVerb::config);
  CHECK(job.out.str() == "{\r\n  \"eps\" : 1 }\n");
  CHECK(job.err.str().empty());
}

TEST_CASE("one value is printed alone") {
  FakeJob job{config_reply("{\"eps\": 0.5}\n")};
  CHECK(get_command(get("eps"), job.ask(), job.console()) == 0);
  CHECK(job.out.str() == "0.5\n");
}

TEST_CASE("an unknown key is a usage error") {
  FakeJob job{config_reply("{}")};
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
  FakeJob job{reply_with(CommandOutcome::failed, "the job has no valid config yet")};
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

TEST_CASE("equal texts have no difference") {
  CHECK(line_diff("", "").empty());
  CHECK(line_diff("{\n}\n", "{\n}\n").empty());
}

TEST_CASE("only the different lines are shown under the line number of the old text") {
  CHECK(line_diff("{\n  \"a\": 1,\n  \"b\": 2\n}\n", "{\n  \"a\": 5,\n  \"b\": 2\n}\n") ==
        "line 2:\n-   \"a\": 1,\n+   \"a\": 5,\n");
  CHECK(line_diff("a\nb\nc\nd\ne\n", "a\nB\nc\nd\nE\nF\n") == "line 2:\n- b\n+ B\nline 5:\n- e\n+ E\n+ F\n");
}

TEST_CASE("added lines and removed lines are shown alone") {
  CHECK(line_diff("{\n}\n", "{\n  \"a\": 1\n}\n") == "line 2:\n+   \"a\": 1\n");
  CHECK(line_diff("a\nb\nb\nc\n", "a\nb\nc\n") == "line 3:\n- b\n");
  CHECK(line_diff("", "a") == "line 1:\n+ a\n");
  CHECK(line_diff("a", "") == "line 1:\n- a\n");
}

TEST_CASE("line endings and control characters do not reach the terminal") {
  CHECK(line_diff("a\r\n", "\x1b[2J\r\n") == "line 1:\n- a\n+ \\x1b[2J\n");
}

TEST_CASE("very long texts without a common line are shown as one run") {
  std::string before;
  std::string after;
  for (int i = 0; i < 3000; ++i) {
    before += "a" + std::to_string(i) + "\n";
    after += "b" + std::to_string(i) + "\n";
  }
  const std::string text = line_diff(before, after);
  CHECK(text.find("line 1:\n- a0\n- a1\n") == 0);
  CHECK(text.find("- a2999\n+ b0\n") != std::string::npos);
}

using Edit = std::pair<std::string, std::string>;

TEST_CASE("a value that is JSON stays unchanged") {
  CHECK(*parse_set_argument("collect_times=5") == Edit{"collect_times", "5"});
  CHECK(*parse_set_argument("dynamic_on=true") == Edit{"dynamic_on", "true"});
  CHECK(*parse_set_argument("ops=[\"min\", \"max\"]") == Edit{"ops", "[\"min\", \"max\"]"});
  CHECK(*parse_set_argument("/alert/dump=null") == Edit{"/alert/dump", "null"});
  CHECK(*parse_set_argument("format=\"csv\"") == Edit{"format", "\"csv\""});
}

TEST_CASE("a value that is not JSON becomes a string") {
  CHECK(*parse_set_argument("format=csv") == Edit{"format", "\"csv\""});
  CHECK(*parse_set_argument("eps=NaN") == Edit{"eps", "\"NaN\""});
  CHECK(*parse_set_argument("format=") == Edit{"format", "\"\""});
  CHECK(*parse_set_argument("x=say \"hi\"") == Edit{"x", "\"say \\\"hi\\\"\""});
  CHECK(*parse_set_argument("x=True") == Edit{"x", "\"True\""});
  CHECK(*parse_set_argument("x=007") == Edit{"x", "\"007\""});
}

TEST_CASE("the key ends at the first equals sign") {
  CHECK(*parse_set_argument("x=a=b") == Edit{"x", "\"a=b\""});
}

TEST_CASE("a key with a dot is refused and the error suggests a JSON pointer") {
  const auto refused = parse_set_argument("cc_distribution.enable=true");
  REQUIRE(!refused);
  CHECK(refused.error() ==
        "no key has a dot: \"cc_distribution.enable\"; a key within another is written "
        "/cc_distribution/enable");
  CHECK(parse_set_argument("/targets/blocks.0={}"));
}

TEST_CASE("an argument that is not KEY=VALUE is refused") {
  CHECK(!parse_set_argument("collect_times"));
  CHECK(!parse_set_argument("=5"));
  CHECK(!parse_set_argument(""));
  CHECK(!parse_set_argument("x=\xff"));
}

constexpr const char* kText = R"({"step_interval": 1e0, "alert": {"dump": true},
  "targets": {"layers.3": {"input": "tensor"}}, "note": [1,  2]})";

TEST_CASE("a value is returned as written even for an unknown key of the file") {
  CHECK(config_value(kText, "step_interval") == "1e0");
  CHECK(config_value(kText, "/alert/dump") == "true");
  CHECK(config_value(kText, "/targets/layers.3/input") == "\"tensor\"");
  CHECK(config_value(kText, "note") == "[1,  2]");
}

TEST_CASE("a key that the file lacks has its default") {
  CHECK(config_value(kText, "ops") == "[\"norm\"]");
  CHECK(config_value(kText, "collect_times") == "100000000");
  CHECK(config_value(kText, "/alert/rules") == "[]");
  CHECK(config_value(kText, "/on_alert/times") == "1");
  CHECK(config_value(kText, "max_overhead") == "null");
}

TEST_CASE("the error for an unknown key suggests the nearest key of the same object") {
  const auto error = [](const char* key) { return config_value(kText, key).error(); };
  CHECK(error("step_intervall") == "unknown key \"step_intervall\" (did you mean \"step_interval\"?)");
  CHECK(error("/alert/dumb") == "unknown key \"dumb\" in /alert (did you mean \"dump\"?)");
  CHECK(error("/targets/layers.4") == "unknown key \"layers.4\" in /targets (did you mean \"layers.3\"?)");
  CHECK(error("/eps/x") == "unknown key \"x\" in /eps");
  CHECK(error("bananas") == "unknown key \"bananas\"");
}

TEST_CASE("an invalid JSON pointer is an error") {
  CHECK(config_value(kText, "/a~2").error() == "\"/a~2\" is not a key or JSON pointer");
}

}  // namespace
}  // namespace gradmon
