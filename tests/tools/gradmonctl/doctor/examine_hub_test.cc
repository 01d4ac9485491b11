// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/doctor/examine_hub.h"

#include <sys/stat.h>

#include <fstream>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

using Level = Finding::Level;

// $XDG_RUNTIME_DIR is a directory of the test's own.
class Runtime {
 public:
  Runtime() { chmod(directory_.path().c_str(), 0700); }

  std::filesystem::path base() const { return directory_ / "gradmon"; }
  EnvironmentLookup lookup() const {
    return [path = directory_.path().string()](const char* name) {
      return std::string(name) == "XDG_RUNTIME_DIR" ? std::optional(path) : std::nullopt;
    };
  }

 private:
  TemporaryDirectory directory_;
};

TEST_CASE("a hub is found, started and asked, and nothing of the trial is left") {
  const Runtime runtime;
  const Findings findings = examine_hub(runtime.lookup(), GRADMON_HUB_PROGRAM);
  REQUIRE(findings.size() == 2);
  CHECK(findings[0].level == Level::ok);
  CHECK(findings[0].text.find(runtime.base().string() + ": mode 0700, ") == 0);
  CHECK(findings[1].text == GRADMON_HUB_PROGRAM " starts and answers");
  CHECK(findings[1].level == Level::ok);
  CHECK(std::filesystem::is_empty(runtime.base()));
}

TEST_CASE("a hub that is not found or does not start is a failure") {
  const Runtime runtime;
  const Findings missing = examine_hub(runtime.lookup(), "/no/such/library.so");
  CHECK(worst(missing) == Level::fail);
  CHECK(missing.back().text.find("/no/such/gradmon-hub") != std::string::npos);
  TemporaryDirectory beside;
  std::ofstream(beside / "gradmon-hub") << "#!/bin/sh\nexit 3\n";
  chmod((beside / "gradmon-hub").c_str(), 0700);
  const Findings broken = examine_hub(runtime.lookup(), beside / "library.so");
  CHECK(worst(broken) == Level::fail);
  CHECK(broken.back().text.find("gradmon-hub: exited with status 3") != std::string::npos);
  CHECK(std::filesystem::is_empty(runtime.base()));
}

TEST_CASE("a base that others can enter is a failure and says what to do") {
  const Runtime runtime;
  std::filesystem::create_directory(runtime.base());
  chmod(runtime.base().c_str(), 0750);
  const Findings findings = examine_hub(runtime.lookup(), GRADMON_HUB_PROGRAM);
  CHECK(findings[0].level == Level::fail);
  CHECK(findings[0].text == runtime.base().string() + ": has mode 0750; expected 0700; run chmod 700");
  CHECK(findings[1].level == Level::warn);
}

TEST_CASE("a base without room is warned of, and one that is full is a failure") {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
  CHECK(check_free_space("/base", {100 * mib, true}).level == Level::ok);
  CHECK(check_free_space("/base", {100 * mib, true}).text == "/base: mode 0700, 100 MiB free");
  CHECK(check_free_space("/base", {5 * mib, true}).level == Level::warn);
  CHECK(check_free_space("/base", {mib / 2, true}).level == Level::fail);
  CHECK(check_free_space("/base", {100 * mib, false}).level == Level::fail);
}

}  // namespace
}  // namespace gradmon
