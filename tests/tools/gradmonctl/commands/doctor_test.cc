// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "control/hub/keys/keygen.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"
#include "tools/gradmonctl/commands/doctor_command.h"
#include "tools/gradmonctl/doctor/directory_capabilities.h"
#include "tools/gradmonctl/doctor/examine_config.h"
#include "tools/gradmonctl/doctor/examine_directories.h"
#include "tools/gradmonctl/doctor/examine_host.h"

namespace gradmon {
namespace {

using Level = Finding::Level;

Findings sample_findings() {
  return {{Level::ok, "job", "ON since step 1200", ""},
          {Level::warn, "config watch", "a save raises no event", "put it on a local disk"},
          {Level::fail, "output mode", "0777: everybody can write to evil\x1b[31m", "chmod o-w out"}};
}

TEST_CASE("findings are told to people and to programs") {
  CHECK(golden_difference("findings.txt", findings_text(sample_findings())) == "");
  CHECK(golden_difference("findings.json", findings_json(sample_findings())) == "");
  CHECK(worst({}) == Level::ok);
  CHECK(worst(sample_findings()) == Level::fail);
}

TEST_CASE("a finding of several lines is shown in as many, with no escapes") {
  const Findings findings{{Level::warn, "last error", "a.json:1:2: one\na.json:3:4: two", "mend\nboth"}};
  CHECK(findings_text(findings) ==
        "warn  last error  a.json:1:2: one\n"
        "                  a.json:3:4: two\n"
        "                  → mend\n"
        "                    both\n");
}

TEST_CASE("a directory is tried and nothing is left in it") {
  TemporaryDirectory directory;
  const auto trial = probe_directory(directory.path());
  REQUIRE(trial);
  CHECK(trial->link);
  CHECK(trial->exchange);
  CHECK(std::filesystem::is_empty(directory.path()));
  CHECK(probe_directory("/proc").error().find("no file can be made in /proc: ") == 0);
}

TEST_CASE("file systems are told by their names") {
  CHECK(file_system_of("/proc") == "proc");
  CHECK(file_system_of("/no/such/path").empty());
  CHECK(is_network_file_system("nfs"));
  CHECK_FALSE(is_network_file_system("ext4"));
}

TEST_CASE("a config directory that is missing is a failure and one without write access a warning") {
  const Findings missing = examine_config_directory("/no/such/directory");
  REQUIRE(missing.size() == 1);
  CHECK(missing[0].level == Level::fail);
  CHECK(missing[0].text == "/no/such/directory: No such file or directory");
  const Findings closed = examine_config_directory("/proc");
  CHECK(worst(closed) == Level::warn);
}

TEST_CASE("an output directory that everybody can write to is warned of") {
  TemporaryDirectory directory;
  CHECK(worst(examine_output_directory(directory.path())) == Level::ok);
  REQUIRE(chmod(directory.path().c_str(), 0777) == 0);
  const Findings findings = examine_output_directory(directory.path());
  CHECK(worst(findings) == Level::warn);
  CHECK(findings[1].remedy == "chmod o-w " + directory.path().string());
  CHECK(worst(examine_output_directory(directory / "later")) == Level::ok);
}

TEST_CASE("keys are in order or the finding says why not") {
  TemporaryDirectory directory;
  const auto keys = directory / "keys";
  REQUIRE(make_key_directory(keys));
  CHECK(examine_keys(keys).level == Level::ok);
  REQUIRE(chmod((keys / "server.secret").c_str(), 0644) == 0);
  CHECK(examine_keys(keys).level == Level::fail);
  CHECK(examine_keys(keys).text.find("server.secret") != std::string::npos);
  CHECK(examine_keys(directory / "none").level == Level::fail);
}

TEST_CASE("limits that are reached are warned of") {
  CHECK(examine_inotify({128, 1000, 3, 5}).level == Level::ok);
  CHECK(examine_inotify({128, 1000, 128, 200}).level == Level::warn);
  CHECK(examine_inotify({128, 1000, 3, 995}).level == Level::warn);
  CHECK(examine_descriptors("rank 0", {1024, 4096, 100}).level == Level::ok);
  const Finding full = examine_descriptors("rank 0", {1024, 4096, 1010});
  CHECK(full.level == Level::warn);
  CHECK(full.check == "descriptors of rank 0");
  CHECK(full.text == "1010 of 1024 are open (hard limit 4096)");
}

TEST_CASE("descriptors of a process are counted and of none are not") {
  const auto own = descriptor_use(getpid());
  REQUIRE(own);
  CHECK(own->open >= 3);
  CHECK(own->soft > own->open);
  CHECK_FALSE(descriptor_use(0x7fffffff));
}

TEST_CASE("the doctor tells what a job says of its torch and its hooks") {
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

TEST_CASE("the doctor looks at the output directory that the job tells of") {
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

TEST_CASE("the doctor fails where the file of --config is wrong, whatever the job's file is") {
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

TEST_CASE("a config file that nobody has named may be missing, and a warning is one") {
  TemporaryDirectory directory;
  const std::string file = (directory / "config.json").string();
  CHECK(examine_config_file(file, ConfigNamed::by_job_or_default).level == Level::warn);
  CHECK(examine_config_file(file, ConfigNamed::by_option).level == Level::fail);
  write_text(file, "{\"step_intervall\": 2}");
  const Finding finding = examine_config_file(file, ConfigNamed::by_option);
  CHECK(finding.level == Level::warn);
  CHECK(finding.text.find(file + ":1:2: ") == 0);
}

TEST_CASE("without a job the doctor looks at the host and a failure ends with 1") {
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
