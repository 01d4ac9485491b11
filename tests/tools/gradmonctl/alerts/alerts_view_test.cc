// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/alerts/alerts_view.h"

#include "control/debian_version.h"
#include "tests/support/golden.h"
#include "tests/tools/gradmonctl/alerts/sample_alerts.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("the alerts look as in the golden files") {
  CHECK(golden_difference("alerts.txt", full_text(alerts_listing(sample_alerts()))) == "");
  CHECK(golden_difference("alerts.json", alerts_json(sample_alerts(), JsonLayout::indented)) == "");
  std::string lines;
  for (const RankAlert& alert : sample_alerts().alerts) lines += alert_line(alert);
  CHECK(golden_difference("alerts_followed.txt", lines) == "");
}

TEST_CASE("a job without alerts says so") {
  CHECK(full_text(alerts_listing({})) == "no alert is listed\n");
  CHECK(alerts_json({}, JsonLayout::one_line) == "{\"schema_version\":2,\"raised\":0,\"alerts\":[]}\n");
}

TEST_CASE("every line of followed alerts is a line, whatever the texts hold") {
  for (const RankAlert& alert : sample_alerts().alerts) {
    for (const std::string& line : {alert_line(alert), alert_json(alert)}) {
      CHECK(line.find('\n') == line.size() - 1);
      CHECK(line.find('\x1b') == std::string::npos);
    }
  }
}

}  // namespace
}  // namespace gradmon
