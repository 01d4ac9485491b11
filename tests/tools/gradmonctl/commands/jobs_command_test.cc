// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"

namespace gradmon {
namespace {

HubReplies::Answer answer(const std::string& name, const std::string& launch_id) {
  HubReplies::Answer job{"ipc:///run/user/1000/gradmon/" + launch_id + "/hub.sock", sample_status()};
  job.status.launch_id = launch_id;
  job.status.name = name;
  return job;
}

// The list of three jobs: one collects, one is off, one has just started.
std::string listing(bool json) {
  HubReplies::Answer off = answer("", "launch-2");
  off.status.state = "off";
  off.status.reason = "rejected by rank 3: no such \x1b[31mformat";
  off.status.output_dir = "/out/2";
  HubReplies::Answer young = answer("evil\n", "launch-3");
  young.status.state = "off";
  young.status.output_dir = "";
  young.status.config_path = "";
  FakeJob screen;
  CHECK(jobs_command({{}, json}, {{answer("train.py", "launch-1"), off, young}, {}}, {}, screen.console()) ==
        0);
  CHECK(screen.err.str().empty());
  return screen.out.str();
}

TEST_CASE("jobs as text and as JSON match their golden files") {
  CHECK(golden_difference("jobs.txt", listing(false)) == "");
  CHECK(golden_difference("jobs.json", listing(true)) == "");
}

TEST_CASE("no job is no error and ignored directories and silent hubs are named") {
  FakeJob nobody;
  const HubReplies silent{{}, {"the hub at /run/y does not answer"}};
  CHECK(jobs_command({}, silent, {"/run/x: has mode 0777"}, nobody.console()) == 0);
  CHECK(nobody.out.str() == "no job of this user runs on this host\n");
  CHECK(nobody.err.str() ==
        "gradmonctl: ignored /run/x: has mode 0777\ngradmonctl: the hub at /run/y does not answer\n");
}

}  // namespace
}  // namespace gradmon
