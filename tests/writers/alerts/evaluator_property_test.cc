// SPDX-License-Identifier: Apache-2.0
// Compares the evaluator with a plain reference that keeps all values and computes everything anew.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <tuple>

#include "control/debian_version.h"
#include "tests/writers/sample_records.h"
#include "writers/alerts/alert_evaluator.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

double plain_median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

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
