// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/alert_evaluator.h"

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "control/debian_version.h"
#include "tests/writers/alerts/recorded_run.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr auto kNorm = static_cast<std::uint8_t>(Op::norm);

AlertRule rule(Anomaly anomaly, std::optional<double> threshold = {}) { return {anomaly, threshold}; }

using Alerts = std::set<std::pair<std::int64_t, std::string>>;  // step, "NAME RULE"

// All alerts of a recorded run.
Alerts replay(const std::string& run_name, const std::vector<AlertRule>& rules) {
  RecordedRun run(run_name);
  AlertEvaluator evaluator;
  evaluator.set_rules(rules);
  Alerts alerts;
  for (auto records = run.next_step(); !records.empty(); records = run.next_step()) {
    const Findings& findings = evaluator.evaluate({}, records);
    CHECK(findings.left_out == 0);
    for (const Finding& finding : findings.first) {
      const std::string& name = run.names().name(records[finding.record].target);
      alerts.emplace(run.step(), name + " " + name_of(finding.anomaly));
    }
  }
  return alerts;
}

Record norm_record(double norm, std::uint32_t target = 1) {
  Record record = plain_record(0, target);
  record.target = target;
  record.values[kNorm] = norm;
  return record;
}

// The anomaly found in the norm, or "".
std::string found(AlertEvaluator& evaluator, double norm, std::uint32_t target = 1) {
  const Findings& findings = evaluator.evaluate({}, {norm_record(norm, target)});
  return findings.first.empty() ? "" : name_of(findings.first[0].anomaly);
}

double mean_of(const AlertEvaluator& evaluator, std::uint32_t target = 1) {
  return evaluator.mean_of(Kind::grad_reduced, target, 0, kNorm);
}

}  // namespace

TEST_CASE("AnomalySpike reports the poisoned batch of a recorded run and nothing else") {
  const Alerts alerts = replay("loss_spike", {rule(Anomaly::spike)});
  CHECK(alerts.size() == 11);  // the loss and the gradients of 10 of 11 parameters
  CHECK(alerts.count({200, "loss AnomalySpike"}) == 1);
  CHECK(alerts.count({200, "head.weight AnomalySpike"}) == 1);
  for (const auto& alert : alerts) CHECK(alert.first == 200);
}

TEST_CASE("AnomalyVanish reports the dying layer of a recorded run once, in its third step") {
  const Alerts alerts = replay("dying_layer", {rule(Anomaly::vanish)});
  CHECK(alerts == Alerts{{152, "fc1.bias AnomalyVanish"},
                         {152, "fc1.weight AnomalyVanish"},
                         {152, "fc2.weight AnomalyVanish"}});
}

TEST_CASE("AnomalyNan reports every NaN of a recorded run from the step of the overflow on") {
  const Alerts alerts = replay("nan", {rule(Anomaly::nan)});
  CHECK(alerts.size() == 11 + 179 * 12);  // in step 120 the loss is infinite
  CHECK(alerts.begin()->first == 120);
  CHECK(alerts.count({121, "loss AnomalyNan"}) == 1);
}

TEST_CASE("AnomalyTurbulence reports the poisoned batch and stays active after a NaN") {
  const Alerts alerts = replay("loss_spike", {rule(Anomaly::turbulence, 1.0)});
  CHECK(alerts.count({200, "head.weight AnomalyTurbulence"}) == 1);
  CHECK(alerts.count({200, "loss AnomalyTurbulence"}) == 0);  // it looks at norms and means only

  AlertEvaluator evaluator;
  evaluator.set_rules({rule(Anomaly::turbulence, 0.5)});
  CHECK(found(evaluator, 2) == "");
  CHECK(found(evaluator, kNan) == "");
  CHECK(found(evaluator, kInf) == "AnomalyTurbulence");
  CHECK(mean_of(evaluator) == 2);
  CHECK(found(evaluator, 3.1) == "AnomalyTurbulence");
}

TEST_CASE("the first rule that fires for a value is the one reported") {
  const AlertRule nan = rule(Anomaly::nan, 10.0);
  const AlertRule turbulence = rule(Anomaly::turbulence, 0.5);
  for (const bool nan_first : {true, false}) {
    AlertEvaluator evaluator;
    evaluator.set_rules(nan_first ? std::vector{nan, turbulence} : std::vector{turbulence, nan});
    CHECK(found(evaluator, 1) == "");
    CHECK(found(evaluator, 100) == (nan_first ? "AnomalyNan" : "AnomalyTurbulence"));
    CHECK(found(evaluator, kNan) == "AnomalyNan");
    CHECK(found(evaluator, 5) == "AnomalyTurbulence");
  }
}

TEST_CASE("a finding has the mean before its value, and for a first value its magnitude") {
  AlertEvaluator evaluator;
  evaluator.set_rules({rule(Anomaly::nan, 10.0)});
  CHECK(evaluator.evaluate({}, {norm_record(-20)}).first.at(0).mean == 20);
  CHECK(evaluator.evaluate({}, {norm_record(30)}).first.at(0).mean == 20);
  CHECK(std::abs(evaluator.evaluate({}, {norm_record(30)}).first.at(0).mean - (0.99 * 20 + 0.01 * 30)) <
        1e-9);
  CHECK(std::isnan(evaluator.evaluate({}, {norm_record(kNan, 2)}).first.at(0).mean));
}

TEST_CASE("every value of a row is looked at, except the number of samples") {
  AlertEvaluator evaluator;
  evaluator.set_rules({rule(Anomaly::nan)});
  Record all = plain_record(0, 0);
  all.mask = (1U << kOps) - 1;
  all.values.fill(kNan);
  Record scalar = plain_record(0, 1);
  scalar.kind = Kind::scalar;
  scalar.mask = bit_of(Column::samples) | bit_of(Column::value);
  scalar.values.fill(kNan);
  std::string ops;
  const Findings& findings = evaluator.evaluate({}, {all, scalar});
  for (const Finding& finding : findings.first) ops += std::string(finding.op) + " ";
  CHECK(ops == "min max mean norm nans zeros absmax value ");
}

TEST_CASE("a norm that has vanished is reported again after it has recovered") {
  AlertEvaluator evaluator;
  evaluator.set_rules({AlertRule{Anomaly::vanish, {}, 16, 1e-3, 2}});
  for (int i = 0; i < 16; ++i) REQUIRE(found(evaluator, 1) == "");
  CHECK(found(evaluator, 1e-4) == "");
  CHECK(found(evaluator, 1) == "");
  CHECK(found(evaluator, 1e-4) == "");
  CHECK(found(evaluator, kNan) == "");
  CHECK(found(evaluator, 0) == "AnomalyVanish");
  for (int i = 0; i < 40; ++i) REQUIRE(found(evaluator, 0) == "");
  for (int i = 0; i < 16; ++i) REQUIRE(found(evaluator, 1) == "");
  CHECK(found(evaluator, 0) == "");
  CHECK(found(evaluator, 0) == "AnomalyVanish");
}

TEST_CASE("a norm that stays low for more steps than its window has is reported") {
  AlertEvaluator evaluator;
  evaluator.set_rules({AlertRule{Anomaly::vanish, {}, 16, 1e-3, 100}});
  for (int i = 0; i < 4; ++i) found(evaluator, 1);
  for (int i = 0; i < 99; ++i) REQUIRE(found(evaluator, 0) == "");
  CHECK(found(evaluator, 0) == "AnomalyVanish");
}

TEST_CASE("micro steps have histories of their own where rows have them") {
  AlertEvaluator evaluator;
  evaluator.set_rules({rule(Anomaly::turbulence, 0.5)});
  for (const Kind kind : {Kind::actv, Kind::grad_unreduced}) {
    Record first = norm_record(1);
    first.kind = kind;
    Record second = norm_record(10);
    second.kind = kind;
    second.micro_step = 1;
    CHECK(evaluator.evaluate({}, {first, second}).first.size() == (kind == Kind::actv ? 0U : 1U));
  }
}

TEST_CASE("new rules keep the histories, also those of a window of another length") {
  AlertEvaluator evaluator;
  evaluator.set_rules({AlertRule{Anomaly::spike, {}, 64}, rule(Anomaly::turbulence, 0.5)});
  for (int i = 0; i < 64; ++i) found(evaluator, i % 2 == 0 ? 9 : 11);
  const double mean = mean_of(evaluator);
  evaluator.set_rules({AlertRule{Anomaly::spike, {}, 16}, AlertRule{Anomaly::spike, 50.0, 64}});
  CHECK(mean_of(evaluator) == mean);
  CHECK(found(evaluator, 30) == "AnomalySpike");
  evaluator.set_rules({AlertRule{Anomaly::vanish, {}, 32, 1e-3, 1}});
  CHECK(found(evaluator, 0) == "AnomalyVanish");
}

TEST_CASE("at most 16 findings of a step are listed and the others are counted") {
  AlertEvaluator evaluator;
  evaluator.set_rules({rule(Anomaly::nan)});
  std::vector<Record> records;
  for (std::uint32_t i = 0; i < 40; ++i) records.push_back(norm_record(i < 5 ? 1 : kNan, i));
  const Findings& findings = evaluator.evaluate({}, records);
  REQUIRE(findings.first.size() == 16);
  CHECK(findings.left_out == 19);
  for (std::size_t i = 0; i < 16; ++i) CHECK(findings.first[i].record == i + 5);
  CHECK(evaluator.evaluate({}, {norm_record(1)}).left_out == 0);
}

TEST_CASE("a lasting fault begins once, and again after a step without it") {
  AlertEvaluator evaluator;
  evaluator.set_rules({rule(Anomaly::nan, 100.0), rule(Anomaly::turbulence, 5.0)});
  std::string began;
  for (const double norm : {1.0, kNan, kNan, 200.0, 1.0, kNan, 50.0, 60.0, kNan}) {
    const Findings& findings = evaluator.evaluate({}, {norm_record(norm)});
    began += findings.begun.empty() ? "-" : findings.begun[0].anomaly == Anomaly::nan ? "n" : "t";
  }
  CHECK(began == "-n---nt-n");
  evaluator.set_rules({rule(Anomaly::nan)});  // new rules do not raise it again
  CHECK(evaluator.evaluate({}, {norm_record(kNan)}).begun.empty());
  CHECK(evaluator.evaluate({}, {norm_record(kNan)}).first.size() == 1);
}

TEST_CASE("a value that moves about a threshold is one alert, until ten steps are below it") {
  AlertEvaluator evaluator;
  evaluator.set_rules({rule(Anomaly::turbulence, 5.0)});
  std::string began;
  std::vector<double> norms{1, 50, 1, 50, 1, 1, 50};
  norms.insert(norms.end(), 9, 1);
  norms.push_back(50);  // the tenth step
  norms.insert(norms.end(), 10, 1);
  norms.push_back(50);
  for (const double norm : norms)
    began += evaluator.evaluate({}, {norm_record(norm)}).begun.empty() ? "-" : "t";
  CHECK(began ==
        "-t-----"
        "----------"
        "----------t");
}

TEST_CASE("a spike's finding has the median that it exceeds, which no earlier spike has raised") {
  AlertEvaluator evaluator;
  evaluator.set_rules({AlertRule{Anomaly::spike, {}, 16}});
  for (int i = 0; i < 16; ++i) found(evaluator, i % 4 < 2 ? 9 : 11);
  CHECK(found(evaluator, 1e6) == "AnomalySpike");
  const Findings& findings = evaluator.evaluate({}, {norm_record(100)});
  REQUIRE(findings.first.size() == 1);
  CHECK((findings.first[0].mean > 9 && findings.first[0].mean < 12));
  CHECK(findings.begun.empty());
}

TEST_CASE("AnomalyNan begins once for each row of a recorded run, whatever it looks at later") {
  RecordedRun run("nan");
  AlertEvaluator evaluator;
  evaluator.set_rules({rule(Anomaly::nan)});
  std::map<std::int64_t, std::size_t> begun;
  for (auto records = run.next_step(); !records.empty(); records = run.next_step()) {
    const Findings& findings = evaluator.evaluate({}, records);
    if (!findings.begun.empty()) begun[run.step()] = findings.begun.size();
  }
  CHECK(begun == std::map<std::int64_t, std::size_t>{{120, 11}, {121, 1}});
}

TEST_CASE("of a row, the norm stands for the values that begin") {
  AlertEvaluator evaluator;
  evaluator.set_rules({rule(Anomaly::nan)});
  Record all = norm_record(kNan);
  all.mask = (1U << kOps) - 1;
  all.values.fill(kNan);
  const Findings& findings = evaluator.evaluate({}, {all});
  CHECK(findings.first.size() == kOps);
  REQUIRE(findings.begun.size() == 1);
  CHECK(std::string(findings.begun[0].op) == "norm");
}

TEST_CASE(
    "what begins has NaN and the scalars first, the same share for each rule, and a count of the rest") {
  AlertEvaluator evaluator;
  evaluator.set_rules({rule(Anomaly::turbulence, 5.0), rule(Anomaly::nan)});
  std::vector<Record> records;
  for (std::uint32_t i = 0; i < 100; ++i) records.push_back(norm_record(1, i));
  Record loss = plain_record(0, 0);
  loss.kind = Kind::scalar;
  loss.mask = bit_of(Column::value);
  loss.values[static_cast<std::size_t>(Column::value)] = kNan;
  evaluator.evaluate({}, records);
  for (std::size_t i = 0; i < 100; ++i) records[i].values[kNorm] = i < 60 ? 100 : kNan;
  records.push_back(loss);
  const Findings& findings = evaluator.evaluate({}, records);
  REQUIRE(findings.begun.size() == 16);
  CHECK(findings.begun[0].record == 100);
  CHECK(findings.begun[0].left_out == 41 - 8);
  CHECK((findings.begun[1].record == 60 && findings.begun[1].left_out == 0));
  CHECK((findings.begun[8].anomaly == Anomaly::turbulence && findings.begun[8].left_out == 60 - 8));
  CHECK(evaluator.evaluate({}, records).begun.empty());
}

TEST_CASE("rows above the limit of series begin together, until none of them has the fault") {
  AlertEvaluator evaluator(1);
  evaluator.set_rules({rule(Anomaly::nan)});
  std::string began;
  for (const auto& [b, c] : std::vector<std::pair<double, double>>{
           {1, 1}, {kNan, 1}, {1, kNan}, {kNan, kNan}, {1, 1}, {1, kNan}}) {
    const Findings& findings =
        evaluator.evaluate({}, {norm_record(1, 1), norm_record(b, 2), norm_record(c, 3)});
    began += std::to_string(findings.begun.size());
  }
  CHECK(began == "010001");
}

TEST_CASE("above the limit of series only AnomalyNan looks at further rows") {
  AlertEvaluator evaluator(2);
  evaluator.set_rules({rule(Anomaly::turbulence, 0.5), rule(Anomaly::nan)});
  for (const double norm : {1.0, 100.0}) {
    for (std::uint32_t target = 1; target <= 3; ++target) {
      CHECK(found(evaluator, norm, target) == (norm > 1 && target < 3 ? "AnomalyTurbulence" : ""));
    }
  }
  CHECK(found(evaluator, kNan, 3) == "AnomalyNan");
  CHECK(evaluator.series() == 2);
  CHECK(evaluator.rows_without_series() == 3);
}
