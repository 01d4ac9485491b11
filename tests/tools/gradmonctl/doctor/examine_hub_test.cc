// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/doctor/examine_hub.h"

#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

using Level = Finding::Level;

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

// Whether the command line of a process names a path in `directory`, as that of a hub does.
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
  const Findings findings = examine_hub(runtime.lookup(), GRADMON_HUB_PROGRAM);
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

TEST_CASE("an argument is compared as a whole, and a command line that cannot be read has none") {
  TemporaryDirectory directory;
  using namespace std::string_literals;
  write_text(directory / "cmdline", "gradmon-hub\0--directory\0/run/job\0"s);
  CHECK(has_argument(directory / "cmdline", "/run/job"));
  CHECK_FALSE(has_argument(directory / "cmdline", "/run"));
  CHECK_FALSE(has_argument(directory.path(), "/run/job"));  // Reading fails, as after the end of a process.
  CHECK_FALSE(has_argument(directory / "missing", "/run/job"));
}

TEST_CASE("a hub that is not found or does not start is a failure") {
  const RuntimeDirectory runtime;
  const Findings missing = examine_hub(runtime.lookup(), "/no/such/library.so");
  REQUIRE(worst(missing) == Level::fail);
  CHECK(missing.back().text.find("/no/such/gradmon-hub") != std::string::npos);
  TemporaryDirectory beside;
  std::ofstream(beside / "gradmon-hub") << "#!/bin/sh\nexit 3\n";
  chmod((beside / "gradmon-hub").c_str(), 0700);
  const Findings broken = examine_hub(runtime.lookup(), beside / "library.so");
  REQUIRE(worst(broken) == Level::fail);
  CHECK(broken.back().text.find("gradmon-hub: exited with status 3") != std::string::npos);
  CHECK(std::filesystem::is_empty(runtime.base()));
}

TEST_CASE("a base directory that others can enter is a failure with its remedy") {
  const RuntimeDirectory runtime;
  std::filesystem::create_directory(runtime.base());
  chmod(runtime.base().c_str(), 0750);
  const Findings findings = examine_hub(runtime.lookup(), GRADMON_HUB_PROGRAM);
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
