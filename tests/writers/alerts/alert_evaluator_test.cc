// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/alert_evaluator.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "control/alert_rule.h"
#include "tests/support/catch.h"
#include "tests/writers/sample_records.h"

namespace gradmon {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr auto kNorm = static_cast<std::uint8_t>(Op::norm);

AlertRule rule(Anomaly anomaly, std::optional<double> threshold = {}) { return {anomaly, threshold}; }

// A training run in recorded/: record.py made the files, and says what went wrong in each run.
class RecordedRun {
 public:
  explicit RecordedRun(const std::string& name) : file_(std::string(GRADMON_RECORDED "/") + name + ".csv") {
    std::string line;
    std::getline(file_, line);
    std::istringstream titles(line);
    std::string title;
    std::getline(titles, title, ',');  // "step"
    while (std::getline(titles, title, ',')) targets_.push_back(names_.intern(title));
  }

  const NameTable& names() const { return names_; }
  std::int64_t step() const { return step_; }

  // The records of the next step: the loss as a training scalar, the norms of reduced gradients. Empty: the
  // run has ended.
  std::vector<Record> next_step() {
    std::vector<Record> records;
    std::string line;
    if (!std::getline(file_, line)) return records;
    std::istringstream cells(line);
    std::string cell;
    std::getline(cells, cell, ',');
    step_ = std::stoll(cell);
    for (const std::uint32_t target : targets_) {
      std::getline(cells, cell, ',');
      Record record = plain_record(step_, target);
      record.target = target;
      record.values[static_cast<std::size_t>(Op::norm)] = std::stod(cell);
      records.push_back(record);
    }
    Record loss = records.front();
    loss.kind = Kind::scalar;
    loss.mask = bit_of(Column::value);
    loss.values[static_cast<std::size_t>(Column::value)] = loss.values[static_cast<std::size_t>(Op::norm)];
    records.erase(records.begin());
    records.push_back(loss);
    return records;
  }

 private:
  std::ifstream file_;
  NameTable names_;
  std::vector<std::uint32_t> targets_;  // the loss first
  std::int64_t step_ = -1;
};

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

double plain_median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double plain_deviation(const std::vector<double>& values) {
  const double median = plain_median(values);
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::fabs(value - median));
  return plain_median(deviations);
}

// Keeps all values and computes everything anew.
class Reference {
 public:
  explicit Reference(std::vector<AlertRule> rules) : rules_(std::move(rules)) {}

  // The first anomaly in a value, and the mean or median that its rule compares with.
  std::pair<std::optional<Anomaly>, double> look(const Record& record, std::uint8_t value) {
    Values& seen = values_[{record.kind, record.target, value}];
    const double x = record.values[value];
    const double mean = seen.finite.empty() ? std::fabs(x) : plain_mean(seen.finite);
    std::optional<Anomaly> first;
    double compared = mean;
    bool withheld = false;
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      double usual = mean;
      const bool fires = holds(rules_[i], record.kind, value, x, mean, seen, seen.low[i], withheld, usual);
      if (!fires || first) continue;
      first = rules_[i].anomaly;
      compared = usual;
    }
    if (std::isfinite(x)) seen.finite.push_back(x);
    if (std::isfinite(x) && !withheld) seen.windowed.push_back(x);
    return {first, compared};
  }

 private:
  struct Values {
    std::vector<double> finite;    // all of them
    std::vector<double> windowed;  // those that may be in a window
    std::map<std::size_t, int> low;
  };

  static double plain_mean(const std::vector<double>& values) {
    double mean = std::fabs(values.front());
    for (std::size_t i = 1; i < values.size(); ++i) mean = 0.99 * mean + (1 - 0.99) * std::fabs(values[i]);
    return mean;
  }

  bool holds(const AlertRule& rule, Kind kind, std::uint8_t value, double x, double mean, const Values& seen,
             int& low, bool& withheld, double& usual) const {
    const bool scalar = kind == Kind::scalar;
    const bool norm = !scalar && value == static_cast<std::uint8_t>(Op::norm);
    const bool is_mean = !scalar && value == static_cast<std::uint8_t>(Op::mean);
    if (rule.anomaly == Anomaly::nan)
      return std::isnan(x) || (rule.threshold && std::fabs(x) > *rule.threshold);
    if (rule.anomaly == Anomaly::turbulence)
      return (norm || is_mean) && std::fabs(x) > mean * (1 + *rule.threshold);
    if (!norm && (!scalar || rule.anomaly == Anomaly::vanish)) return false;
    const auto kept =
        std::min<std::ptrdiff_t>(rule.window, static_cast<std::ptrdiff_t>(seen.windowed.size()));
    const std::vector<double> window(seen.windowed.end() - kept, seen.windowed.end());
    const bool enough = static_cast<std::int64_t>(window.size()) >= rule.window / 4;
    const double median = enough ? plain_median(window) : 0;
    usual = median;
    if (rule.anomaly == Anomaly::vanish) {
      if (!std::isfinite(x)) return false;
      low = median > 0 && (x == 0 || x < rule.fraction * median) ? low + 1 : 0;
      withheld = withheld || (low > 0 && low < rule.steps);
      return low == rule.steps;
    }
    if (!enough) return false;
    std::vector<double> deviations;
    for (const double of : window) deviations.push_back(std::fabs(of - median));
    const double scale = std::max(1.4826 * plain_median(deviations), 0.01 * std::fabs(median));
    return scale > 0 && x - median > rule.threshold.value_or(10) * scale;
  }

  const std::vector<AlertRule> rules_;
  std::map<std::tuple<Kind, std::uint32_t, std::uint8_t>, Values> values_;
};

class RandomRun {
 public:
  explicit RandomRun(std::uint64_t seed) : random_(seed) {}

  std::vector<AlertRule> rules() {
    std::vector<AlertRule> rules;
    const std::uint64_t count = 1 + random_() % 5;
    for (std::uint64_t i = 0; i < count; ++i) {
      AlertRule rule;
      rule.anomaly = static_cast<Anomaly>(random_() % 4);
      if (rule.anomaly == Anomaly::turbulence || random_() % 2 == 0)
        rule.threshold = 0.5 * static_cast<double>(random_() % 9);
      if (rule.anomaly == Anomaly::spike && rule.threshold == 0.0) rule.threshold = 1.0;
      rule.window = random_() % 2 == 0 ? 16 : 24;
      rule.fraction = random_() % 2 == 0 ? 0.1 : 0;
      rule.steps = 1 + static_cast<std::int64_t>(random_() % 20);
      rules.push_back(rule);
    }
    return rules;
  }

  // Rows are missing at times, and come in another order at times.
  std::vector<Record> step() {
    std::vector<Record> records;
    for (std::uint32_t target = 1; target <= 4; ++target) {
      if (random_() % 10 == 0) continue;
      Record record = plain_record(0, target);
      record.target = target;
      record.kind = target == 4 ? Kind::scalar : Kind::grad_reduced;
      record.mask = target == 4
                        ? bit_of(Column::value)
                        : static_cast<ValueMask>(bit_of(Op::norm) | bit_of(Op::mean) | bit_of(Op::max));
      for (double& value : record.values) value = this->value(target == 4);
      records.push_back(record);
    }
    if (random_() % 10 == 0) std::reverse(records.begin(), records.end());
    return records;
  }

 private:
  double value(bool may_be_negative) {
    const std::uint64_t choice = random_() % 40;
    if (choice == 0) return std::numeric_limits<double>::quiet_NaN();
    if (choice == 1) return std::numeric_limits<double>::infinity();
    if (choice < 4) dead_ = !dead_;
    if (choice == 4) return 1e3;
    const double alive = std::exp(normal_(random_));
    return dead_ ? 0 : may_be_negative && choice < 12 ? -alive : alive;
  }

  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  bool dead_ = false;
};

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

TEST_CASE("AnomalyTurbulence reports the poisoned batch of a recorded run") {
  const Alerts alerts = replay("loss_spike", {rule(Anomaly::turbulence, 1.0)});
  CHECK(alerts.count({200, "head.weight AnomalyTurbulence"}) == 1);
  CHECK(alerts.count({200, "loss AnomalyTurbulence"}) == 0);  // it looks at norms and means only
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

TEST_CASE("median and deviation are those of the last values, for series of every kind") {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  for (const std::int64_t length : {kShortestWindow, std::int64_t{17}, std::int64_t{64}, kLongestWindow}) {
    for (int series = 0; series < 6; ++series) {
      SlidingWindow window(length);
      std::vector<double> all;
      for (int i = 0; i < 700; ++i) {
        const double choices[] = {
            normal(random),         std::floor(3 * normal(random)), 1.0,
            static_cast<double>(i), static_cast<double>(-i),        std::exp(20 * normal(random))};
        all.push_back(choices[series]);
        window.add(all.back());
        const auto kept = std::min<std::ptrdiff_t>(length, static_cast<std::ptrdiff_t>(all.size()));
        const std::vector<double> last(all.end() - kept, all.end());
        REQUIRE(window.size() == kept);
        REQUIRE(window.median() == plain_median(last));
        REQUIRE(window.median_deviation() == plain_deviation(last));
        REQUIRE(window.least_median_deviation() <= window.median_deviation());
        REQUIRE(window[0] == last.front());
        REQUIRE(window[kept - 1] == last.back());
      }
    }
  }
}

TEST_CASE("findings and means are those of a plain reference for random series and rules") {
  std::map<Anomaly, int> fired;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    RandomRun run(seed);
    const std::vector<AlertRule> rules = run.rules();
    Reference reference(rules);
    AlertEvaluator evaluator;
    evaluator.set_rules(rules);
    for (int step = 0; step < 120; ++step) {
      const std::vector<Record> records = run.step();
      const Findings findings = evaluator.evaluate({}, records);
      std::size_t next = 0;
      for (std::size_t i = 0; i < records.size(); ++i) {
        for (std::uint8_t value = 0; value < kValues; ++value) {
          if ((records[i].mask >> value & 1U) == 0) continue;
          const auto [anomaly, mean] = reference.look(records[i], value);
          if (!anomaly) continue;
          CAPTURE(seed, step, i, static_cast<int>(value), name_of(*anomaly));
          REQUIRE(next < findings.first.size());
          const Finding& finding = findings.first[next++];
          REQUIRE((finding.record == i && finding.value == value && finding.anomaly == *anomaly));
          REQUIRE((finding.mean == mean || (std::isnan(finding.mean) && std::isnan(mean))));
          ++fired[*anomaly];
        }
      }
      REQUIRE(next == findings.first.size());
    }
  }
  for (const Anomaly anomaly : {Anomaly::turbulence, Anomaly::nan, Anomaly::spike, Anomaly::vanish}) {
    CAPTURE(name_of(anomaly));
    CHECK(fired[anomaly] > 100);
  }
}

}  // namespace
}  // namespace gradmon
