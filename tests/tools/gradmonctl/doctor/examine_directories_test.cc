// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/doctor/examine_directories.h"

#include <sys/stat.h>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "control/hub/keys/keygen.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

using Level = Finding::Level;

TEST_CASE("a missing config directory is a failure and an unwritable one a warning") {
  const Findings missing = examine_config_directory("/no/such/directory");
  REQUIRE(missing.size() == 1);
  CHECK(missing[0].level == Level::fail);
  CHECK(missing[0].text == "/no/such/directory: No such file or directory");
  const Findings closed = examine_config_directory("/proc");
  CHECK(worst(closed) == Level::warn);
}

TEST_CASE("an output directory that everybody can write to is a warning") {
  TemporaryDirectory directory;
  CHECK(worst(examine_output_directory(directory.path())) == Level::ok);
  REQUIRE(chmod(directory.path().c_str(), 0777) == 0);
  const Findings findings = examine_output_directory(directory.path());
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

}  // namespace
}  // namespace gradmon
