// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/doctor/examine_config.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

using Level = Finding::Level;

TEST_CASE("only a missing file of --config is a failure and an unknown key is a warning") {
  TemporaryDirectory directory;
  const std::string file = (directory / "config.json").string();
  CHECK(examine_config_file(file, ConfigNamed::by_job_or_default).level == Level::warn);
  CHECK(examine_config_file(file, ConfigNamed::by_option).level == Level::fail);
  write_text(file, "{\"step_intervall\": 2}");
  const Finding finding = examine_config_file(file, ConfigNamed::by_option);
  CHECK(finding.level == Level::warn);
  CHECK(finding.text.find(file + ":1:2: ") == 0);
}

}  // namespace
}  // namespace gradmon
