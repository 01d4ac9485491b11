// SPDX-License-Identifier: Apache-2.0
// The program itself, where no job is needed.
#include <fstream>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/support/golden.h"
#include "tests/tools/gradmonctl/gradmonctl_process.h"

namespace gradmon {
namespace {

// A shell in which $CTL is gradmonctl.
int in_shell(const std::string& script) {
  GradmonctlProcess shell({"run", "-n", "1", "--", "bash", "-c", script}, {"CTL=" GRADMONCTL});
  return shell.wait();
}

TEST_CASE("help goes to stdout and a usage error to stderr") {
  GradmonctlProcess help({"--help"}, {"TERM=dumb", "LC_ALL=C"});
  CHECK(help.wait() == 0);
  CHECK(golden_difference("help.txt", help.out()) == "");
  CHECK(help.err().empty());
  GradmonctlProcess nothing({});
  CHECK(nothing.wait() == 2);
  CHECK(nothing.out().empty());
  CHECK(nothing.err() == help.out());
}

TEST_CASE("commands without a job end with 4 and say where they looked") {
  TemporaryDirectory directory;
  const std::string place = (directory / "").string();
  for (const char* command : {"status", "watch", "on", "off", "get", "history", "targets"}) {
    GradmonctlProcess ctl({command, "--output-dir", place});
    CHECK(ctl.wait() == 4);
    CHECK(ctl.out().empty());
    CHECK(ctl.err().find("no live job with the output directory " + place) != std::string::npos);
  }
}

TEST_CASE("an endpoint that is none is a usage error") {
  GradmonctlProcess ctl({"status", "--endpoint", "nonsense"});
  CHECK(ctl.wait() == 2);
}

TEST_CASE("validate tells of a good file and of every error of a bad one") {
  TemporaryDirectory directory;
  const std::string good = (directory / "good.json").string();
  std::ofstream(good) << "{\"dynamic_on\": true, \"step_intervall\": 2}\n";
  GradmonctlProcess valid({"validate", good});
  CHECK(valid.wait() == 0);
  CHECK(valid.out() == good + ": valid\n");
  CHECK(valid.err().find("warning: " + good + ":1:") == 0);

  const std::string bad = (directory / "bad.json").string();
  std::ofstream(bad) << "{\"dynamic_on\": 1,\n \"step_interval\": 0}\n";
  GradmonctlProcess invalid({"validate", bad});
  CHECK(invalid.wait() == 6);
  CHECK(invalid.out().empty());
  CHECK(invalid.err().find(bad + ":1:") == 0);
  CHECK(invalid.err().find("\n" + bad + ":2:") != std::string::npos);
}

TEST_CASE("validate says why a file cannot be read") {
  GradmonctlProcess missing({"validate", "/no/such/file"});
  CHECK(missing.wait() == 1);
  CHECK(missing.err() == "gradmonctl: /no/such/file: No such file or directory\n");
  GradmonctlProcess directory({"validate", "/"});
  CHECK(directory.wait() == 1);
}

TEST_CASE("the schema and the table of all keys look like their golden files") {
  GradmonctlProcess schema({"schema"});
  CHECK(schema.wait() == 0);
  CHECK(golden_difference("schema.json", schema.out()) == "");
  GradmonctlProcess table({"schema", "--text"});
  CHECK(table.wait() == 0);
  CHECK(golden_difference("schema.txt", table.out()) == "");
}

TEST_CASE("a stdout that is closed or that nobody reads is no error") {
  CHECK(in_shell("$CTL --help >&-") == 0);
  CHECK(in_shell("set -o pipefail; $CTL --help | true") == 0);
}

TEST_CASE("a full disk is an error") { CHECK(in_shell("$CTL --help >/dev/full") == 1); }

}  // namespace
}  // namespace gradmon
