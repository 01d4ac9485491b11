// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/jobs_command.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/support/golden.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"

namespace gradmon {
namespace {

JobEntry entry(const std::string& name, const std::string& launch_id) {
  JobEntry job;
  job.epoch = "0123456789abcdef0123456789abcdef";
  job.launch_id = launch_id;
  job.name = name;
  job.started = kSampleTime;
  job.endpoint = "ipc:///run/user/1000/gradmon/" + launch_id + "/hub.sock";
  return job;
}

// One that collects, one that is off, one that does not answer.
std::string listing(bool json) {
  FakeJob job;
  CommandReply on;
  on.status = sample_status();
  job.answer(on);
  CommandReply off;
  off.status = sample_status();
  off.status->state = "off";
  off.status->reason = "rejected by rank 3: no such \x1b[31mformat";
  off.status->output_dir = "/out/2";
  job.answer(off);
  std::vector<std::string> endpoints;
  const FoundHere found{{entry("train.py", "launch-1"), entry("", "launch-2"), entry("evil\n", "launch-3")},
                        {}};
  const auto ask_at = [&](const std::string& endpoint) {
    endpoints.push_back(endpoint);
    return job.ask();
  };
  CHECK(jobs_command({json}, found, ask_at, job.console()) == 0);
  CHECK(job.err.str().empty());
  CHECK(endpoints.size() == 3);
  CHECK(endpoints.back() == found.jobs.back().endpoint);
  return job.out.str();
}

TEST_CASE("jobs are told to people and to programs") {
  CHECK(golden_difference("jobs.txt", listing(false)) == "");
  CHECK(golden_difference("jobs.json", listing(true)) == "");
}

TEST_CASE("no job is no error, and a directory that was passed over is named") {
  FakeJob nobody;
  const auto ask_at = [&](const std::string&) { return nobody.ask(); };
  CHECK(jobs_command({}, {{}, {"/run/x: has mode 0777"}}, ask_at, nobody.console()) == 0);
  CHECK(nobody.out.str() == "no job of this user runs on this host\n");
  CHECK(nobody.err.str() == "gradmonctl: ignored /run/x: has mode 0777\n");
}

}  // namespace
}  // namespace gradmon
