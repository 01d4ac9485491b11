// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/alert_description.h"

#include <cmath>

#include "tests/support/catch.h"

using namespace gradmon;
using namespace std::chrono_literals;

namespace {

Alert event_of(const std::string& rule, double value, double mean, const std::string& tag,
               std::uint64_t left_out = 0) {
  Alert event;
  event.rule = rule;
  event.step = 120;
  event.tag_name = tag;
  event.op = "norm";
  event.value = value;
  event.history_mean = mean;
  event.left_out = left_out;
  return event;
}

AlertReport spikes(std::int64_t step, std::size_t count = 1) {
  AlertReport alerts;
  for (std::size_t i = 0; i < count; ++i) {
    alerts.alerts.push_back(event_of("AnomalySpike", 24.4, 0.086, "0:head.output:0/rank0/actv_grad"));
    alerts.alerts.back().step = step;
  }
  return alerts;
}

std::string line_of(const Alert& event) { return AlertLog().lines({{event}, event.left_out}, {}).at(0); }

const std::string kSpike = ": gradient norm of head.output is 24.4 (usually 0.086)";

}  // namespace

TEST_CASE("the alerts of a step and rule are one line") {
  AlertReport alerts = spikes(120, 8);
  alerts.alerts.insert(alerts.alerts.begin(),
                       event_of("AnomalyNan", -std::nan(""), 0.7, "0:loss/rank0/scalar"));
  alerts.alerts[1].left_out = 84;
  CHECK(AlertLog().lines(alerts, {}) ==
        std::vector<std::string>{"NaN at step 120, rank 0: loss is nan (usually 0.7)",
                                 "spike at step 120, rank 0" + kSpike + ", and 91 more series"});
}

TEST_CASE("an alert that comes after the line of its step and rule is counted in the rule's next line") {
  AlertLog log;
  CHECK(log.lines(spikes(120, 3), {}).size() == 1);
  CHECK(log.lines(spikes(120), {}).empty());
  CHECK(log.lines(spikes(121), {}) ==
        std::vector<std::string>{"spike at step 121, rank 0" + kSpike +
                                 "; 1 more alerts of AnomalySpike since step 120 are not in the log"});
}

TEST_CASE("a line says what the rule has found, and what is usual where that is known") {
  const std::string tag = "0:w/rank0/post_grad";
  CHECK(line_of(event_of("AnomalyNan", 5e9, 1, tag)) ==
        "large value at step 120, rank 0: gradient norm of w is 5e+09 (usually 1)");
  CHECK(line_of(event_of("AnomalyNan", std::nan(""), std::nan(""), tag)) ==
        "NaN at step 120, rank 0: gradient norm of w is nan");
  CHECK(line_of(event_of("AnomalyTurbulence", -7, 7, tag)) ==
        "turbulence at step 120, rank 0: gradient norm of w is -7");
  CHECK(line_of(event_of("AnomalyVanish", 0, 7, tag)) ==
        "vanished norm at step 120, rank 0: gradient norm of w is 0 (usually 7)");
  CHECK(
      line_of(event_of("AnomalyRankDivergence", 2.5, 2, tag, 1)) ==
      "ranks differ at step 120, rank 0: gradient norm of w is 2.5 (other ranks have 2), and 1 more series");
}

TEST_CASE("a rule has twelve lines at once and then one in 150 s, which counts what had none") {
  AlertLog log;
  const AlertLog::Time begin{};
  for (std::int64_t step = 0; step < 12; ++step) CHECK(log.lines(spikes(step), begin).size() == 1);
  for (std::int64_t step = 12; step < 20; ++step) CHECK(log.lines(spikes(step, 3), begin + 149s).empty());
  CHECK(log.lines(spikes(20), begin + 150s) ==
        std::vector<std::string>{"spike at step 20, rank 0" + kSpike +
                                 "; 24 more alerts of AnomalySpike since step 12 are not in the log"});
  CHECK(log.lines(spikes(21), begin + 299s).empty());
  CHECK(log.lines(spikes(22), begin + 300s).size() == 1);
  for (std::int64_t step = 30; step < 50; ++step)
    CHECK(log.lines(spikes(step), begin + 10h).size() == (step < 42 ? 1U : 0U));
}

TEST_CASE("a rule that has used up its lines leaves those of the others") {
  AlertLog log;
  for (std::int64_t step = 0; step < 100; ++step) log.lines(spikes(step), {});
  AlertReport nan;
  nan.alerts.push_back(event_of("AnomalyNan", std::nan(""), 1, "0:w/rank0/post_grad"));
  CHECK(log.lines(nan, {}).size() == 1);
}

TEST_CASE("rules without a known name share one place, and all rules log less than 200 lines an hour") {
  AlertLog log;
  std::size_t lines = 0;
  for (int second = 0; second < 3'600; ++second) {
    AlertReport alerts;
    for (const char* rule : kAnomalyNames) alerts.alerts.push_back(event_of(rule, 1, 2, "tag"));
    alerts.alerts.push_back(event_of("Rule" + std::to_string(second), 1, 2, "tag"));
    for (Alert& event : alerts.alerts) event.step = second;
    lines += log.lines(alerts, AlertLog::Time{} + std::chrono::seconds(second)).size();
  }
  CHECK(lines == 5 * (12 + 23));
}
