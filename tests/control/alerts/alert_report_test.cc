// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/alert_report.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("a report is cut to sixteen alerts and the others are counted") {
  AlertReport report;
  report.left_out = 3;
  for (int i = 0; i < 20; ++i) {
    RankAlert alert;
    alert.step = i;
    report.alerts.push_back(alert);
  }
  const AlertReport cut = bounded(report);
  REQUIRE(cut.alerts.size() == 16);
  CHECK(cut.alerts.back().step == 15);
  CHECK(cut.left_out == 7);
}

TEST_CASE("long texts of an alert are cut between characters") {
  RankAlert alert;
  alert.rule = std::string(100, 'r');
  alert.op = std::string(100, 'o');
  alert.tag_name = std::string(511, 't') + "\xC3\xA4";  // the second byte of the character is byte 513
  alert.message = std::string(5'000, 'm');
  const AlertReport cut = bounded({{alert}, 0});
  CHECK(cut.alerts[0].rule.size() == 64);
  CHECK(cut.alerts[0].op.size() == 64);
  CHECK(cut.alerts[0].tag_name == std::string(511, 't'));
  CHECK(cut.alerts[0].message.size() == 1'000);
}

TEST_CASE("a report within its bounds stays as it is") {
  RankAlert alert;
  alert.tag_name = "0:fc1.weight/rank0/post_grad";
  alert.message = "Rule AnomalyNan";
  const AlertReport cut = bounded({{alert}, 5});
  CHECK(cut.alerts[0].tag_name == alert.tag_name);
  CHECK(cut.alerts[0].message == alert.message);
  CHECK(cut.left_out == 5);
}

}  // namespace
}  // namespace gradmon
