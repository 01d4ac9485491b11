// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/find_job.h"

#include <stdlib.h>

#include <optional>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "control/host/process_identity.h"
#include "tests/tools/gradmonctl/gradmonctl_process.h"

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

// Of another host, where nobody can look whether it lives.
JobEntry elsewhere(const std::string& number) {
  JobEntry job;
  job.epoch = number;
  job.launch_id = "launch-" + number;
  job.name = "train.py";
  job.endpoint = "ipc:///only/there";
  job.address = "tcp://elsewhere:" + number;
  job.host = "elsewhere";
  job.started = 1'783'341'296'789;
  return job;
}

// As live_jobs() tells of it.
JobEntry live(const std::string& number) {
  JobEntry job = elsewhere(number);
  job.endpoint = job.address;
  return job;
}

TEST_CASE("the option names the job before the environment and that before the output directory") {
  TemporaryDirectory directory;
  const std::string out = (directory / "").string();
  REQUIRE(write_entry(out, elsewhere("1")));
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

TEST_CASE("a name chooses among the jobs of the output directory too") {
  TemporaryDirectory directory;
  const std::string out = (directory / "").string();
  const std::string one = random_hex(4);  // Any job of this user on this host can be found.
  const std::string two = random_hex(4);
  REQUIRE(write_entry(out, elsewhere(one)));
  REQUIRE(write_entry(out, elsewhere(two)));
  const Variable job("GRADMON_JOB", ("launch-" + two).c_str());
  {
    const Variable endpoint("GRADMON_ENDPOINT", nullptr);
    CHECK(*find_endpoint({"", out, "", "launch-" + one}) == "tcp://elsewhere:" + one);
    CHECK(find_endpoint({"", out}).error().code == 2);
  }
  const Variable output("MONITOR_OUTPUT_DIR", out.c_str());
  const Variable endpoint("GRADMON_ENDPOINT", "ipc:///given");
  CHECK(*find_endpoint({}) == "ipc:///given");
  CHECK(*find_endpoint({"", "", "", "launch-" + one}) == "tcp://elsewhere:" + one);
  const Variable unset("GRADMON_ENDPOINT", nullptr);
  CHECK(*find_endpoint({}) == "tcp://elsewhere:" + two);
  CHECK(find_endpoint({"", "", "", one}).error().message.find("no live job named " + one + " (") == 0);
}

TEST_CASE("a name is meant before a launch id") {
  JobEntry one = live("1");
  JobEntry two = live("2");
  one.name = "launch-2";
  REQUIRE(jobs_named("launch-2", {one, two}).size() == 1);
  CHECK(jobs_named("launch-2", {one, two}).front().launch_id == "launch-1");
  CHECK(jobs_named("launch-1", {one, two}).size() == 1);
  CHECK(jobs_named("", {live("1")}).empty());
}

TEST_CASE("without a live job there is no answer to be had") {
  TemporaryDirectory directory;
  const auto none = find_endpoint({"", (directory / "").string()});
  REQUIRE(!none);
  CHECK(none.error().code == 4);
  CHECK(none.error().message.find("no live job with the output directory ") == 0);
}

TEST_CASE("where a hub does not answer nobody is told that there is no job") {
  const auto none = only_job({{}, {"the hub at /run/hub.sock does not answer"}}, "named train.py");
  REQUIRE(!none);
  CHECK(none.error().code == 4);
  CHECK(none.error().message ==
        "no job named train.py answered:\nthe hub at /run/hub.sock does not answer\n");
  CHECK(only_job({{live("1")}, {"the hub at /run/hub.sock does not answer"}}, "").has_value());
}

TEST_CASE("several live jobs are listed and one is to be chosen") {
  const auto several = only_job({{live("1"), live("2")}, {}}, "with the output directory /out");
  REQUIRE(!several);
  CHECK(several.error().code == 2);
  CHECK(several.error().message ==
        "2 live jobs with the output directory /out; choose one with --job or --endpoint\n"
        "endpoint           name      host       started                  launch\n"
        "tcp://elsewhere:1  train.py  elsewhere  2026-07-06 12:34:56 UTC  launch-1\n"
        "tcp://elsewhere:2  train.py  elsewhere  2026-07-06 12:34:56 UTC  launch-2\n");
}

}  // namespace
}  // namespace gradmon
