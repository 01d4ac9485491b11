// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/find_job.h"

#include <stdlib.h>

#include <optional>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/tools/gradmonctl_process.h"

namespace gradmon {
namespace {

// A variable as the test wants it; as it was afterwards.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = getenv(name)) old_ = old;
    value != nullptr ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Variable() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

// Of another host, so that it counts as live.
JobEntry elsewhere(const std::string& epoch) {
  JobEntry job;
  job.epoch = epoch;
  job.launcher_id = "launch-" + epoch;
  job.endpoint = "tcp://elsewhere:" + epoch;
  job.host = "elsewhere";
  job.pid = 17;
  job.started = 1'783'341'296'789;
  return job;
}

TEST_CASE("the option names the job before the environment and that before the file") {
  TemporaryDirectory directory;
  const std::string out = (directory / "").string();
  REQUIRE(add_job(out, elsewhere("1")));
  const Variable output("MONITOR_OUTPUT_DIR", out.c_str());
  {
    const Variable endpoint("GRADMON_ENDPOINT", "ipc:///given");
    CHECK(*find_endpoint({"ipc:///option", ""}) == "ipc:///option");
    CHECK(*find_endpoint({}) == "ipc:///given");
    CHECK(*find_endpoint({"", out}) == "tcp://elsewhere:1");
  }
  const Variable endpoint("GRADMON_ENDPOINT", nullptr);
  CHECK(*find_endpoint({}) == "tcp://elsewhere:1");
}

TEST_CASE("the output directory is the option or the variable or the default") {
  const Variable unset("MONITOR_OUTPUT_DIR", nullptr);
  CHECK(output_directory({}) == "./monitor_output");
  const Variable output("MONITOR_OUTPUT_DIR", "/out");
  CHECK(output_directory({}) == "/out");
  CHECK(output_directory({"", "/mine"}) == "/mine");
}

TEST_CASE("without a live job there is no answer to be had") {
  TemporaryDirectory directory;
  const auto none = find_endpoint({"", (directory / "").string()});
  REQUIRE(!none);
  CHECK(none.error().code == 4);
  CHECK(none.error().message.find("no live job in ") == 0);
}

TEST_CASE("several live jobs are listed and one is to be chosen") {
  const auto several = only_job({elsewhere("1"), elsewhere("2")}, "/out");
  REQUIRE(!several);
  CHECK(several.error().code == 2);
  CHECK(several.error().message ==
        "2 live jobs in /out/gradmon.json; choose one with --endpoint\n"
        "endpoint           host       pid  started                  launcher\n"
        "tcp://elsewhere:1  elsewhere   17  2026-07-06 12:34:56 UTC  launch-1\n"
        "tcp://elsewhere:2  elsewhere   17  2026-07-06 12:34:56 UTC  launch-2\n");
}

}  // namespace
}  // namespace gradmon
