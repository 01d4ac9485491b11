// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/alerts/alerts_view.h"

#include "control/debian_version.h"
#include "tests/support/golden.h"
#include "tests/tools/gradmonctl/alerts/sample_alerts.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("the alerts look as in the golden files") {
  CHECK(golden_difference("alert_groups.txt", full_text(alert_groups_listing(sample_alerts()))) == "");
  CHECK(golden_difference("alerts.txt", full_text(alerts_listing(sample_alerts()))) == "");
  CHECK(golden_difference("alerts.json", alerts_json(sample_alerts(), JsonLayout::indented)) == "");
  std::string lines;
  for (const RankAlert& alert : sample_alerts().alerts) lines += alert_line(alert);
  CHECK(golden_difference("alerts_followed.txt", lines) == "");
}

TEST_CASE("the first step of each rule comes first, and a line has the ranks and series of its step") {
  CommandReply reply;
  const auto add = [&](std::int64_t step, const char* rule, int rank, std::uint64_t left_out) {
    RankAlert alert;
    alert.step = step;
    alert.rule = rule;
    alert.rank = Rank{rank};
    alert.tag_name = "0:loss/rank" + std::to_string(rank) + "/scalar";
    alert.value = 2.5;
    alert.left_out = left_out;
    reply.alerts.push_back(alert);
  };
  for (const std::int64_t step : {60, 61, 200}) add(step, "AnomalySpike", 3, 0);
  for (const int rank : {1, 0, 2}) add(160, "AnomalyNan", rank, rank == 1 ? 90 : 0);
  const auto lines = alert_groups_listing(reply).entries;
  REQUIRE(lines.size() == 4);
  const std::vector<std::string> begins{"  60  AnomalySpike  3           1",
                                        " 160  AnomalyNan    0-2        93", "  61  AnomalySpike",
                                        " 200  AnomalySpike"};
  for (std::size_t i = 0; i < lines.size(); ++i) CHECK(lines[i].substr(0, begins[i].size()) == begins[i]);
}

TEST_CASE("a job without alerts says so") {
  CHECK(full_text(alert_groups_listing({})) == "no alert is listed\n");
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
