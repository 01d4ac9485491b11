// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <system_error>

#include "control/hub/transport/curve_keys.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/resource_limit.h"
#include "tests/support/scoped_variable.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"
#include "tools/gradmonctl/commands/doctor.h"

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

using Level = CheckResult::Level;

CheckResults sample_findings() {
  return {{Level::ok, "job", "ON since step 1200", ""},
          {Level::warn, "config watch", "a save raises no event", "put it on a local disk"},
          {Level::fail, "output mode", "0777: everybody can write to evil\x1b[31m", "chmod o-w out"}};
}

TEST_CASE("findings as text and as JSON match their golden files") {
  CHECK(golden_difference("findings.txt", findings_text(sample_findings())) == "");
  CHECK(golden_difference("findings.json", findings_json(sample_findings())) == "");
  CHECK(worst({}) == Level::ok);
  CHECK(worst(sample_findings()) == Level::fail);
}

TEST_CASE("a finding of several lines keeps its lines") {
  const CheckResults findings{{Level::warn, "last error", "a.json:1:2: one\na.json:3:4: two", "mend\nboth"}};
  CHECK(findings_text(findings) ==
        "warn  last error  a.json:1:2: one\n"
        "                  a.json:3:4: two\n"
        "                  → mend\n"
        "                    both\n");
}

TEST_CASE("only a missing file of --config is a failure and an unknown key is a warning") {
  TemporaryDirectory directory;
  const std::string file = (directory / "config.json").string();
  CHECK(examine_config_file(file, ConfigNamed::by_job_or_default).level == Level::warn);
  CHECK(examine_config_file(file, ConfigNamed::by_option).level == Level::fail);
  write_text(file, "{\"step_intervall\": 2}");
  const CheckResult finding = examine_config_file(file, ConfigNamed::by_option);
  CHECK(finding.level == Level::warn);
  CHECK(finding.text.find(file + ":1:2: ") == 0);
}

TEST_CASE("probing a directory leaves no file in it") {
  TemporaryDirectory directory;
  const auto trial = probe_directory(directory.path());
  REQUIRE(trial);
  CHECK(trial->exchange);
  CHECK(std::filesystem::is_empty(directory.path()));
  CHECK(probe_directory("/proc").error().find("no file can be made in /proc: ") == 0);
}

TEST_CASE("file systems are recognised by name") {
  CHECK(file_system_type("/proc") == "proc");
  CHECK(file_system_type("/proc/self") == "proc");
  CHECK(file_system_type("/no/such/path").error() == std::errc::no_such_file_or_directory);
  CHECK(is_network_file_system("nfs4"));
  CHECK(is_network_file_system("fuse.sshfs"));
  CHECK_FALSE(is_network_file_system("ext4"));
}

TEST_CASE("a missing config directory is a failure and an unwritable one a warning") {
  const CheckResults missing = examine_config_directory("/no/such/directory");
  REQUIRE(missing.size() == 1);
  CHECK(missing[0].level == Level::fail);
  CHECK(missing[0].text == "/no/such/directory: No such file or directory");
  const CheckResults closed = examine_config_directory("/proc");
  CHECK(worst(closed) == Level::warn);
}

TEST_CASE("an output directory that everybody can write to is a warning") {
  TemporaryDirectory directory;
  CHECK(worst(examine_output_directory(directory.path())) == Level::ok);
  REQUIRE(chmod(directory.path().c_str(), 0777) == 0);
  const CheckResults findings = examine_output_directory(directory.path());
  REQUIRE(findings.size() > 1);
  CHECK(worst(findings) == Level::warn);
  CHECK(findings[1].remedy == "chmod o-w " + directory.path().string());
  CHECK(worst(examine_output_directory(directory / "later")) == Level::ok);
}

TEST_CASE("usable keys are ok and exposed or missing keys are failures") {
  TemporaryDirectory directory;
  const auto keys = directory / "keys";
  REQUIRE(make_key_directory(keys));
  CHECK(examine_keys(keys).level == Level::ok);
  REQUIRE(chmod((keys / "server.secret").c_str(), 0644) == 0);
  CHECK(examine_keys(keys).level == Level::fail);
  CHECK(examine_keys(keys).text.find("server.secret") != std::string::npos);
  CHECK(examine_keys(directory / "none").level == Level::fail);
}

TEST_CASE("reached limits of inotify and descriptors are warnings") {
  CHECK(examine_inotify().level == Level::ok);
  const CheckResult none = [] {
    const DescriptorLimit limit(0);
    return examine_inotify();
  }();
  CHECK(none.level == Level::warn);
  CHECK(none.text == "no instance can be made: Too many open files");
  CHECK(examine_descriptors("rank 0", {1024, 4096, 100}).level == Level::ok);
  const CheckResult full = examine_descriptors("rank 0", {1024, 4096, 1010});
  CHECK(full.level == Level::warn);
  CHECK(full.check == "descriptors of rank 0");
  CHECK(full.text == "1010 of 1024 are open (hard limit 4096)");
}

TEST_CASE("descriptors are counted for a live process only") {
  const auto own = descriptor_use(getpid());
  REQUIRE(own);
  CHECK(own->open >= 3);
  CHECK(own->soft > own->open);
  CHECK_FALSE(descriptor_use(0x7fffffff));
}

// A temporary directory as $XDG_RUNTIME_DIR.
class RuntimeDirectory {
 public:
  std::filesystem::path base() const { return directory_ / "gradmon"; }
  EnvironmentLookup lookup() const {
    return [path = directory_.path().string()](const char* name) {
      return std::string(name) == "XDG_RUNTIME_DIR" ? std::optional(path) : std::nullopt;
    };
  }

 private:
  TemporaryDirectory directory_;
};

// True if the command line of a process names a path in `directory`, as that of a hub does.
bool named_by_a_process(const std::filesystem::path& directory) {
  std::error_code error;
  for (std::filesystem::directory_iterator process("/proc", error), end; !error && process != end;
       process.increment(error)) {
    const std::string command_line = read_text(process->path() / "cmdline");
    if (command_line.find(directory.string() + '/') != std::string::npos) return true;
  }
  return false;
}

TEST_CASE("the doctor finds and starts a trial hub and removes its directory") {
  const RuntimeDirectory runtime;
  const CheckResults findings = examine_hub(runtime.lookup(), GRADMON_HUB_PROGRAM);
  REQUIRE(findings.size() == 2);
  CHECK(findings[0].level == Level::ok);
  CHECK(findings[0].text.find(runtime.base().string() + ": mode 0700, ") == 0);
  CHECK(findings[1].text == GRADMON_HUB_PROGRAM " starts and answers");
  CHECK(findings[1].level == Level::ok);
  CHECK(std::filesystem::is_empty(runtime.base()));
  // Less than a second: a hub ends by itself about a second after its directory is gone.
  const std::chrono::milliseconds soon{500};
  CHECK(eventually([&] { return !named_by_a_process(runtime.base()); }, soon));
}

TEST_CASE("a hub that is not found or does not start is a failure") {
  const RuntimeDirectory runtime;
  const CheckResults missing = examine_hub(runtime.lookup(), "/no/such/library.so");
  REQUIRE(worst(missing) == Level::fail);
  CHECK(missing.back().text.find("/no/such/gradmon-hub") != std::string::npos);
  TemporaryDirectory beside;
  std::ofstream(beside / "gradmon-hub") << "#!/bin/sh\nexit 3\n";
  chmod((beside / "gradmon-hub").c_str(), 0700);
  const CheckResults broken = examine_hub(runtime.lookup(), beside / "library.so");
  REQUIRE(worst(broken) == Level::fail);
  CHECK(broken.back().text.find("gradmon-hub: exited with status 3") != std::string::npos);
  CHECK(std::filesystem::is_empty(runtime.base()));
}

TEST_CASE("a base directory that others can enter is a failure with its remedy") {
  const RuntimeDirectory runtime;
  std::filesystem::create_directory(runtime.base());
  chmod(runtime.base().c_str(), 0750);
  const CheckResults findings = examine_hub(runtime.lookup(), GRADMON_HUB_PROGRAM);
  REQUIRE(findings.size() == 2);
  CHECK(findings[0].level == Level::fail);
  CHECK(findings[0].text == runtime.base().string() + ": has mode 0750; expected 0700; run chmod 700");
  CHECK(findings[1].level == Level::warn);
}

TEST_CASE("little free space is a warning and a full file system is a failure") {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
  CHECK(check_free_space("/base", {100 * mib, true}).level == Level::ok);
  CHECK(check_free_space("/base", {100 * mib, true}).text == "/base: mode 0700, 100 MiB free");
  CHECK(check_free_space("/base", {5 * mib, true}).level == Level::warn);
  CHECK(check_free_space("/base", {mib / 2, true}).level == Level::fail);
  CHECK(check_free_space("/base", {100 * mib, false}).level == Level::fail);
}

}  // namespace

}  // namespace gradmon
