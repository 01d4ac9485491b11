// SPDX-License-Identifier: Apache-2.0
// gradmonctl as a process, without a job.
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/tools/gradmonctl/gradmonctl_process.h"
#include "tests/tools/gradmonctl/no_job_message.h"

namespace gradmon {
namespace {

// Runs `script` in a shell in which $CTL is gradmonctl and $DIR a directory. Returns its exit code. Only
// gradmonctl can be started here, so the shell is a rank of `gradmonctl run`.
int run_script(const std::string& script) {
  const TemporaryDirectory directory;
  return run_gradmonctl({"run", "-n", "1", "--", "bash", "-c", script},
                        {"CTL=" GRADMONCTL, "DIR=" + directory.path().string()})
      .code;
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
    CHECK(says_no_job(ctl.err(), "with the output directory " + place));
  }
}

TEST_CASE("an invalid endpoint is a usage error") {
  GradmonctlProcess ctl({"status", "--endpoint", "nonsense"});
  CHECK(ctl.wait() == 2);
}

TEST_CASE("validate accepts a valid file and lists every error of an invalid file") {
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

TEST_CASE("the schema and the table of all keys match their golden files") {
  GradmonctlProcess schema({"schema"});
  CHECK(schema.wait() == 0);
  CHECK(golden_difference("schema.json", schema.out()) == "");
  GradmonctlProcess table({"schema", "--text"});
  CHECK(table.wait() == 0);
  CHECK(golden_difference("schema.txt", table.out()) == "");
}

TEST_CASE("a closed stdout and a stdout without a reader are no errors") {
  CHECK(run_script("$CTL --help >&-") == 0);
  // Descriptor 3 is closed before gradmonctl starts: then the pipe has no reader.
  CHECK(run_script(R"(mkfifo "$DIR/pipe" && exec 3<>"$DIR/pipe" 4>"$DIR/pipe" 3>&- && $CTL --help >&4)") ==
        0);
}

TEST_CASE("a full disk is an error") { CHECK(run_script("$CTL --help >/dev/full") == 1); }

}  // namespace
}  // namespace gradmon
