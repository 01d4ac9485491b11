// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include "tests/support/catch.h"
#include "tests/support/scoped_variable.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"

namespace gradmon {
namespace {

// The settings of the user who runs the tests do not count while this lives.
struct IsolatedEnvironment {
  const TemporaryDirectory directory;
  const ScopedVariable runtime{"XDG_RUNTIME_DIR", directory.path().c_str()};
  const ScopedVariable config{"XDG_CONFIG_HOME", directory.path().c_str()};
  const ScopedVariable keys{"GRADMON_KEYS", nullptr};
  const ScopedVariable endpoint{"GRADMON_ENDPOINT", nullptr};
  const ScopedVariable job{"GRADMON_JOB", nullptr};
  const ScopedVariable output{"MONITOR_OUTPUT_DIR", nullptr};
};

TEST_CASE("the doctor reports the job's torch and hooks") {
  const IsolatedEnvironment isolated;
  TemporaryDirectory directory;
  FakeJob job;
  CommandReply reply;
  reply.status = sample_status();
  job.answer(reply);
  DoctorRequest request;
  request.file = (directory / "config.json").string();
  write_text(request.file, "{}");
  request.selector.output_dir = directory.path().string();
  CHECK(doctor_command(request, job.ask(), job.console()) == 0);
  CHECK(job.out.str().find("1.13.1; hooks: grad_unreduced, grad_reduced\n") != std::string::npos);
  CHECK(job.out.str().find("ok    output mode") != std::string::npos);
  CHECK(job.out.str().find("ok    job directories") != std::string::npos);
  CHECK(job.out.str().find("gradmon-hub starts and answers\n") != std::string::npos);
}

TEST_CASE("the doctor examines the output directory that the job reports") {
  const IsolatedEnvironment isolated;
  TemporaryDirectory directory;
  FakeJob job;
  CommandReply reply;
  reply.status = sample_status();
  reply.status->output_dir = (directory / "later").string();
  job.answer(reply);
  DoctorRequest request;
  request.file = (directory / "config.json").string();
  write_text(request.file, "{}");
  doctor_command(request, job.ask(), job.console());
  const std::string finding = (directory / "later").string() + " does not exist yet; the job creates it\n";
  CHECK(job.out.str().find(finding) != std::string::npos);
}

TEST_CASE("an invalid file of --config is a failure whatever the job's file is") {
  const IsolatedEnvironment isolated;
  TemporaryDirectory directory;
  const std::string good = (directory / "good.json").string();
  const std::string bad = (directory / "bad.json").string();
  write_text(good, "{\"dynamic_on\": false}");
  write_text(bad, "{\"dynamic_on\": 1,\n \"step_interval\": 0}");
  const auto examine = [&](const std::string& given, const std::string& of_job) {
    FakeJob job;
    CommandReply reply;
    reply.status = sample_status();
    reply.status->config_path = of_job;
    job.answer(reply);
    DoctorRequest request;
    request.file = given;
    request.selector.output_dir = directory.path().string();
    const int code = doctor_command(request, job.ask(), job.console());
    return std::make_pair(code, job.out.str());
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  const auto wrong = examine(bad, good);
  CHECK(wrong.first == 1);
  CHECK(has(wrong.second, "fail  config "));
  CHECK(has(wrong.second, bad + ":1:16: /dynamic_on: "));
  CHECK(has(wrong.second, "\n" + std::string(33, ' ') + bad + ":2:19: /step_interval: "));
  const auto right = examine(good, bad);
  CHECK(right.first == 0);
  CHECK(has(right.second, good + ": valid\n"));
  CHECK_FALSE(has(right.second, bad));
  CHECK(examine("", bad).first == 1);
  const auto missing = examine((directory / "none.json").string(), good);
  CHECK(missing.first == 1);
  CHECK(has(missing.second, "none.json: No such file or directory\n"));
}

TEST_CASE("without a job the doctor examines the host and a failure ends with 1") {
  const IsolatedEnvironment isolated;
  TemporaryDirectory directory;
  FakeJob nobody;
  DoctorRequest request;
  request.file = (directory / "config.json").string();
  write_text(request.file, "{}");
  request.selector.output_dir = directory.path().string();
  CHECK(doctor_command(request, nobody.ask(), nobody.console()) == 0);
  CHECK(nobody.out.str().find("warn  job") == 0);
  request.file = "/no/such/directory/config.json";
  request.json = true;
  CHECK(doctor_command(request, nobody.ask(), nobody.console()) == 1);
  CHECK(nobody.out.str().find("\"level\": \"fail\"") != std::string::npos);
}

}  // namespace
}  // namespace gradmon
