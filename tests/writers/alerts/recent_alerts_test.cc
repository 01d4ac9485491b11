// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/recent_alerts.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

TEST_CASE("the last 256 alerts are kept and all are counted") {
  RecentAlerts recent;
  CHECK(recent.content().events.empty());
  for (std::int64_t step = 0; step < 300; ++step) {
    StepAlerts alerts;
    alerts.step = Step{step};
    alerts.left_out = 2;
    alerts.events.emplace_back();
    alerts.events.back().step = Step{step};
    recent.add(alerts);
  }
  const RecentAlerts::Content content = recent.content();
  CHECK(content.total == 900);
  REQUIRE(content.events.size() == RecentAlerts::kMostKept);
  CHECK(content.events.front().step == Step{300 - 256});
  CHECK(content.events.back().step == Step{299});
}
