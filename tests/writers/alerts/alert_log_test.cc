// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/alert_log.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;
using namespace std::chrono_literals;

namespace {

StepAlerts alerts_of(std::int64_t step, std::size_t count, std::uint64_t left_out = 0) {
  StepAlerts alerts;
  alerts.step = Step{step};
  alerts.left_out = left_out;
  for (std::size_t i = 0; i < count; ++i) {
    alerts.events.emplace_back();
    alerts.events.back().message = "alert " + std::to_string(i);
  }
  return alerts;
}

}  // namespace

TEST_CASE("alerts of a quiet time are all logged") {
  AlertLog log;
  const AlertLog::Time begin{};
  for (int i = 0; i < 20; ++i) {
    CHECK(log.lines(alerts_of(i, 2), begin + i * 10s) == std::vector<std::string>{"alert 0", "alert 1"});
  }
}

TEST_CASE("at most 16 lines in ten seconds are logged and the others are counted") {
  AlertLog log;
  const AlertLog::Time begin{};
  CHECK(log.lines(alerts_of(1, 10), begin).size() == 10);
  CHECK(log.lines(alerts_of(2, 10, 100), begin + 1s).size() == 6);
  CHECK(log.lines(alerts_of(3, 10), begin + 9s).empty());
  CHECK(log.lines(alerts_of(4, 1), begin + 10s) ==
        std::vector<std::string>{"114 more alerts since step 2 are not in the log", "alert 0"});
  CHECK(log.lines(alerts_of(5, 1), begin + 20s) == std::vector<std::string>{"alert 0"});
}
