// SPDX-License-Identifier: Apache-2.0
// Applies the alert rules to the records of a step, and keeps the history of every value. Pure; one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "control/alert_rule.h"
#include "control/vocabulary.h"
#include "writers/queue/record_batch.h"
#include "writers/queue/sink.h"

namespace gradmon {

// The last `length` values of a series, with their median. Allocates once, at the first add(). One thread.
class SlidingWindow {
 public:
  // `length`: kShortestWindow to kLongestWindow (control/alert_rule.h).
  explicit SlidingWindow(std::int64_t length) : length_(static_cast<std::uint16_t>(length)) {}

  // Adds a finite value; if the window is full, the oldest value leaves.
  void add(double value);

  std::int64_t length() const { return length_; }
  std::int64_t size() const { return size_; }
  // The values in the order in which they were added: 0 is the oldest.
  double operator[](std::int64_t index) const;

  // The mean of the two middle values if their number is even. size() > 0.
  double median() const;
  // The median of abs(value − median()). size() > 0.
  double median_deviation() const;
  // Not above median_deviation(), and mostly near it; reads two values, median_deviation() reads half of
  // them. size() > 0.
  double least_median_deviation() const;

 private:
  double sorted(std::size_t place) const { return ring_[order_[place]]; }

  std::uint16_t length_;
  std::uint16_t size_ = 0;
  std::uint16_t next_ = 0;           // the slot of the next value; in a full window, of the oldest one
  std::unique_ptr<double[]> block_;  // owns both of the following
  double* ring_ = nullptr;           // `length_` slots
  std::uint8_t* order_ = nullptr;    // slots by their values, ascending
};

// The conditions of the alert rules (ALERTS.md).
// abs(x) > mean · (1 + threshold). `mean`: of abs(x) before this value.
bool is_turbulent(double x, double mean, double threshold);

// NaN, or abs(x) above the threshold if set.
bool is_nan_or_large(double x, std::optional<double> threshold);

// x is more than `threshold` robust standard deviations above the median of the values before it.
bool is_spike(double x, const SlidingWindow& before, double threshold);

// x is 0 or below `fraction` of the median of the values before it, and that median is above 0.
bool is_low(double x, const SlidingWindow& before, double fraction);

// The exponential mean of abs(x) after a finite x. `mean`: NaN before the first value.
double next_mean(double mean, double x);

// Number of values that a window needs before is_spike and is_low can be true.
constexpr std::int64_t least_values(std::int64_t window) { return window / 4; }

struct WatchedValue;

// A value for which a rule has fired.
struct Finding {
  std::size_t record = 0;  // its place in the step
  std::uint8_t value = 0;  // index into Record::values
  const char* op = "";
  Anomaly anomaly = Anomaly::nan;
  // The value that the rule compares with: the median of the window (AnomalySpike, AnomalyVanish), else the
  // mean of abs(x) before this value; abs(x) itself for the first value.
  double mean = 0;
  // In an anomaly's first finding in `begun`: number of other series in which it began, not in `begun`.
  std::uint64_t left_out = 0;
};

// A lasting fault is found anew in each step, and begins once: in the first step in which it is found in a
// series, and again after a step without it in that series (AnomalyNan), or after kStepsToEnd such steps (the
// others: their values may move about a threshold).
struct Findings {
  std::vector<Finding> first;  // in the order of the records
  std::uint64_t left_out = 0;  // findings after `first`
  // For each series and anomaly that begin, one finding: in the norm, else the first one. NaN comes first;
  // within an anomaly the training scalars, then the order of the records. Each anomaly has the same share of
  // the places.
  std::vector<Finding> begun;
};

class AlertEvaluator {
 public:
  static constexpr std::size_t kMostFindings = 16;  // in `first`, and in `begun`
  static constexpr std::size_t kMostSeries = 65'536;
  static constexpr std::uint8_t kStepsToEnd = 10;  // steps that evaluate() looks at

  // A series is the values of one row: of a kind, a target and a micro step. Above `most_series`, only
  // AnomalyNan looks at further rows; it begins once for all of them.
  explicit AlertEvaluator(std::size_t most_series = kMostSeries) : most_series_(most_series) {}

  // Sets the rules, tried in this order. Keeps the histories: a window of a new length begins with the values
  // of the longest one.
  void set_rules(const std::vector<AlertRule>& rules);

  // Looks at a step's records, which are sorted by kind and then sequence, and adds them to the histories.
  // The reference is valid until the next call.
  const Findings& evaluate(const Layout& layout, const RecordBatch& records);

  std::size_t series() const { return means_.size(); }
  // Rows that arrived after `most_series` series were known.
  std::uint64_t rows_without_series() const { return rows_without_series_; }
  // NaN: the series is unknown, or none of its values was finite. For tests.
  double mean_of(Kind kind, std::uint32_t target, std::int32_t micro_step, std::uint8_t value) const;

 private:
  static constexpr std::uint32_t kNone = 0xffff'ffff;

  struct CheckedRule {
    AlertRule rule;
    std::size_t windows = 0;     // index into windows_; of spike and vanish
    std::size_t low_counts = 0;  // index into low_counts_; of vanish
  };
  // The windows of one length, by series.
  struct Windows {
    std::int64_t length;
    std::vector<SlidingWindow> of;
  };

  struct Fired {
    Anomaly anomaly;
    double compared;  // see Finding::mean
  };
  // For each anomaly, the steps after which it ends; 0: not active.
  using ActiveSteps = std::array<std::uint8_t, kAnomalyNames.size()>;

  std::uint32_t find_or_add_series(std::uint64_t key);
  void add_series(std::uint64_t key);
  std::size_t windows_of_length(std::int64_t length, const std::vector<Windows>& earlier);
  std::optional<Fired> check(const WatchedValue& value, double x, double mean, std::uint32_t series);
  bool fires(const CheckedRule& checked, double x, double mean, std::uint32_t series);
  bool has_vanished(const CheckedRule& checked, double x, std::uint32_t series);
  void add_finding(const Finding& finding);
  void note_fired(const Finding& finding);
  void begin_alerts(Kind kind, std::uint32_t series);
  static std::uint8_t renew(ActiveSteps& active, std::uint8_t fired);
  void choose_begun();

  const std::size_t most_series_;
  std::vector<CheckedRule> rules_;
  std::unordered_map<std::uint64_t, std::uint32_t> index_;  // key to series
  std::uint32_t last_ = kNone;                              // the previous record's series
  std::uint64_t rows_without_series_ = 0;
  bool vanishing_ = false;  // the value that is being checked is low, and its rule has not fired yet
  Findings findings_;

  // The first findings of an anomaly that begin in this step.
  struct Begun {
    std::vector<Finding> of_scalars;
    std::vector<Finding> of_tensors;
    std::uint64_t count = 0;
  };
  std::array<Begun, kAnomalyNames.size()> begun_;
  std::array<Finding, kAnomalyNames.size()> fired_;  // for the row being checked, if its bit is set
  std::uint8_t fired_bits_ = 0;                      // bit_of each anomaly
  std::uint8_t others_fired_ = 0;                    // for the rows without a series, in this step
  ActiveSteps others_active_{};                      // the same, before this step

  // By series.
  std::vector<std::uint64_t> keys_;
  std::vector<std::array<double, kValues>> means_;  // NaN: no finite value so far
  std::vector<ActiveSteps> active_;
  std::vector<Windows> windows_;
  std::vector<std::vector<std::uint16_t>> low_counts_;  // by vanish rule: low values in a row
};

}  // namespace gradmon
