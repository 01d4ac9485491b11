// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/alert_evaluator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "writers/sinks/columns.h"

namespace gradmon {
namespace {

static_assert(kLongestWindow - 1 <= std::numeric_limits<std::uint8_t>::max(),
              "the number of a slot is a byte");

constexpr double kDecay = 0.99;               // msprobe's
constexpr double kSigmaOfDeviation = 1.4826;  // a normal distribution's σ / median absolute deviation
constexpr double kLeastScale = 0.01;          // of abs(median)

}  // namespace

void SlidingWindow::add(double value) {
  if (!block_) {
    const std::size_t slots = length_ + (length_ + sizeof(double) - 1) / sizeof(double);
    block_ = std::make_unique<double[]>(slots);
    ring_ = block_.get();
    order_ = reinterpret_cast<std::uint8_t*>(ring_ + length_);
  }
  const auto slot = static_cast<std::uint8_t>(next_);
  std::uint8_t* end = order_ + size_;
  if (size_ == length_) {
    auto* const oldest = static_cast<std::uint8_t*>(std::memchr(order_, slot, size_));
    std::copy(oldest + 1, end, oldest);
    --end;
  } else {
    ++size_;
  }
  const auto less = [this](std::uint8_t a, double b) { return ring_[a] < b; };
  std::uint8_t* const place = std::lower_bound(order_, end, value, less);
  std::copy_backward(place, end, end + 1);
  *place = slot;
  ring_[slot] = value;
  next_ = static_cast<std::uint16_t>(slot + 1 == length_ ? 0 : slot + 1);
}

double SlidingWindow::operator[](std::int64_t index) const {
  const std::int64_t oldest = size_ == length_ ? next_ : 0;
  return ring_[(oldest + index) % length_];
}

double SlidingWindow::median() const {
  const std::size_t half = size_ / 2U;
  return size_ % 2U == 1 ? sorted(half) : (sorted(half - 1) + sorted(half)) / 2;
}

// The deviations below the median and those above it are each sorted: merges them up to the middle.
double SlidingWindow::median_deviation() const {
  const double center = median();
  const std::size_t half = size_ / 2U;
  std::size_t below = half;  // the next one below the median is at below − 1
  std::size_t above = half;
  double last = 0;
  double before_last = 0;
  for (std::size_t taken = 0; taken <= half; ++taken) {
    before_last = last;
    const bool take_above =
        above < size_ && (below == 0 || sorted(above) - center <= center - sorted(below - 1));
    last = take_above ? sorted(above++) - center : center - sorted(--below);
  }
  return size_ % 2U == 1 ? last : (before_last + last) / 2;
}

// At most size / 2 − 1 values lie between these two. Only those values can have a smaller deviation than the
// nearer of the two.
double SlidingWindow::least_median_deviation() const {
  const double center = median();
  const std::size_t low = size_ / 4U;
  const std::size_t high = low + size_ / 2U;
  return std::min(center - sorted(low), sorted(high) - center);
}

bool is_turbulent(double x, double mean, double threshold) { return std::fabs(x) > mean * (1 + threshold); }

bool is_nan_or_large(double x, std::optional<double> threshold) {
  return std::isnan(x) || (threshold && std::fabs(x) > *threshold);
}

bool is_spike(double x, const SlidingWindow& before, double threshold) {
  if (std::isnan(x) || before.size() < least_values(before.length())) return false;
  const double median = before.median();
  const double least_scale = kLeastScale * std::fabs(median);
  const auto scale_of = [=](double deviation) {
    return std::max(kSigmaOfDeviation * deviation, least_scale);
  };
  // True for nearly all values, and avoids computing the deviation.
  if (x - median <= threshold * scale_of(before.least_median_deviation())) return false;
  const double scale = scale_of(before.median_deviation());
  return scale > 0 && x - median > threshold * scale;
}

bool is_low(double x, const SlidingWindow& before, double fraction) {
  if (before.size() < least_values(before.length())) return false;
  const double median = before.median();
  return median > 0 && (x == 0 || x < fraction * median);
}

double next_mean(double mean, double x) {
  const double size = std::fabs(x);
  return std::isnan(mean) ? size : kDecay * mean + (1 - kDecay) * size;
}

// A value of a record, and the rules that check it.
struct WatchedValue {
  std::uint8_t index;      // into Record::values
  const char* op;          // the title of its column: "norm"
  std::uint8_t anomalies;  // bit_of each Anomaly whose rules check it
};

namespace {

constexpr std::uint8_t bit_of(Anomaly anomaly) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(anomaly));
}

std::uint8_t checked_anomalies(const RowColumn& column, bool of_scalar, bool has_statistics) {
  std::uint8_t bits = bit_of(Anomaly::nan);
  const auto add = [&bits](Anomaly anomaly) { bits = static_cast<std::uint8_t>(bits | bit_of(anomaly)); };
  const bool norm = has_statistics && column.value == static_cast<std::size_t>(Op::norm);
  const bool mean = has_statistics && column.value == static_cast<std::size_t>(Op::mean);
  if (norm || mean) add(Anomaly::turbulence);
  if (norm || of_scalar) add(Anomaly::spike);
  if (norm) add(Anomaly::vanish);
  return bits;
}

std::vector<WatchedValue> make_watched_values(Kind kind) {
  const std::vector<RowColumn> columns = columns_of(kind, layout_of_all_ops());
  const bool has_statistics = columns.back().source == RowColumn::Source::dtype;
  std::vector<WatchedValue> values;
  for (const RowColumn& column : columns) {
    const bool number = column.source == RowColumn::Source::number;
    const bool samples = kind == Kind::scalar && column.source == RowColumn::Source::count;
    if ((!number && column.source != RowColumn::Source::count) || samples) continue;
    values.push_back(
        {column.value, column.title, checked_anomalies(column, kind == Kind::scalar, has_statistics)});
  }
  return values;
}

// In the order of Record::values. AnomalyNan checks every value, except the number of samples of a scalar;
// AnomalyTurbulence checks `norm` and `mean`, AnomalySpike `norm` and the value of a scalar, AnomalyVanish
// `norm`. Any thread.
const std::vector<WatchedValue>& watched_values(Kind kind) {
  static const std::array<std::vector<WatchedValue>, kKinds> all = [] {
    std::array<std::vector<WatchedValue>, kKinds> made;
    for (std::size_t of = 0; of < kRecordKinds; ++of) made[of] = make_watched_values(static_cast<Kind>(of));
    return made;
  }();
  return all[static_cast<std::size_t>(kind)];
}

constexpr double kNoMean = std::numeric_limits<double>::quiet_NaN();
constexpr auto kMostLow = std::numeric_limits<std::uint16_t>::max();

bool has_window(Anomaly anomaly) { return anomaly == Anomaly::spike || anomaly == Anomaly::vanish; }

std::uint64_t series_key(Kind kind, std::uint32_t target, std::int32_t micro_step) {
  constexpr std::int32_t largest = (1 << 24) - 1;  // beyond it micro steps share a series
  return std::uint64_t{static_cast<std::uint8_t>(kind)} << 56U |
         static_cast<std::uint64_t>(std::clamp(micro_step, 0, largest)) << 32U | target;
}

}  // namespace

void AlertEvaluator::set_rules(const std::vector<AlertRule>& rules) {
  const auto same = [](const CheckedRule& a, const AlertRule& b) { return a.rule.tied() == b.tied(); };
  if (std::equal(rules_.begin(), rules_.end(), rules.begin(), rules.end(), same)) return;
  rules_.clear();
  low_counts_.clear();
  std::vector<Windows> earlier = std::exchange(windows_, {});
  std::sort(earlier.begin(), earlier.end(), [](const auto& a, const auto& b) { return a.length > b.length; });
  for (const AlertRule& rule : rules) {
    CheckedRule& checked = rules_.emplace_back(CheckedRule{rule});
    if (has_window(rule.anomaly)) checked.windows = windows_of_length(rule.window, earlier);
    if (rule.anomaly != Anomaly::vanish) continue;
    checked.low_counts = low_counts_.size();
    low_counts_.emplace_back(series(), std::uint16_t{0});
  }
}

// The index of those windows; makes missing ones.
std::size_t AlertEvaluator::windows_of_length(std::int64_t length, const std::vector<Windows>& earlier) {
  const auto found =
      std::find_if(windows_.begin(), windows_.end(), [=](const Windows& w) { return w.length == length; });
  if (found != windows_.end()) return static_cast<std::size_t>(found - windows_.begin());
  Windows& windows = windows_.emplace_back(Windows{length, {}});
  for (std::size_t i = 0; i < series(); ++i) windows.of.emplace_back(length);
  const auto same = [=](const Windows& w) { return w.length == length; };
  auto source = std::find_if(earlier.begin(), earlier.end(), same);
  if (source == earlier.end()) source = earlier.begin();
  for (std::size_t i = 0; source != earlier.end() && i < series(); ++i) {
    const SlidingWindow& values = source->of[i];
    for (std::int64_t at = 0; at < values.size(); ++at) windows.of[i].add(values[at]);
  }
  return windows_.size() - 1;
}

// Steps mostly have the same rows in the same order, so the next series is tried first.
std::uint32_t AlertEvaluator::find_or_add_series(std::uint64_t key) {
  const std::size_t next = last_ == kNone ? 0 : last_ + std::size_t{1};
  if (next < keys_.size() && keys_[next] == key) return last_ = static_cast<std::uint32_t>(next);
  if (const auto found = index_.find(key); found != index_.end()) return last_ = found->second;
  if (series() == most_series_) {
    ++rows_without_series_;
    return kNone;
  }
  add_series(key);
  return last_ = static_cast<std::uint32_t>(series() - 1);
}

void AlertEvaluator::add_series(std::uint64_t key) {
  index_.emplace(key, static_cast<std::uint32_t>(series()));
  keys_.push_back(key);
  means_.emplace_back().fill(kNoMean);
  active_.emplace_back();
  for (Windows& windows : windows_) windows.of.emplace_back(windows.length);
  for (auto& counts : low_counts_) counts.push_back(0);
}

const Findings& AlertEvaluator::evaluate(const Layout& layout, const RecordBatch& records) {
  findings_.first.clear();
  findings_.left_out = 0;
  last_ = kNone;
  bool others = false;
  others_fired_ = 0;
  for (std::size_t row = 0; row < records.size(); ++row) {
    const Kind kind = records.kind(row);
    const std::int32_t micro_step = has_micro_step(kind, layout) ? records.micro_step(row) : 0;
    const std::uint32_t series = find_or_add_series(series_key(kind, records.target(row), micro_step));
    others = others || series == kNone;
    fired_bits_ = 0;
    for (const WatchedValue& value : watched_values(kind)) {
      const double* const found = records.value(row, value.index);
      if (found == nullptr) continue;
      const double x = *found;
      double unknown = kNoMean;
      double& history = series == kNone ? unknown : means_[series][value.index];
      const double mean = std::isnan(history) ? std::fabs(x) : history;
      if (const auto fired = check(value, x, mean, series))
        add_finding({row, value.index, value.op, fired->anomaly, fired->compared});
      if (std::isfinite(x)) history = next_mean(history, x);
    }
    begin_alerts(kind, series);
  }
  if (others) renew(others_active_, others_fired_);
  choose_begun();
  return findings_;
}

// Also adds x to its windows. Every rule sees x, because AnomalyVanish counts.
std::optional<AlertEvaluator::Fired> AlertEvaluator::check(const WatchedValue& value, double x, double mean,
                                                           std::uint32_t series) {
  std::optional<Fired> first;
  vanishing_ = false;
  for (const CheckedRule& checked : rules_) {
    const Anomaly anomaly = checked.rule.anomaly;
    if ((value.anomalies & bit_of(anomaly)) == 0) continue;
    if (!fires(checked, x, mean, series) || first) continue;
    first = Fired{anomaly, has_window(anomaly) ? windows_[checked.windows].of[series].median() : mean};
  }
  const bool windowed = (value.anomalies & bit_of(Anomaly::spike)) != 0;
  if (windowed && series != kNone && std::isfinite(x) && !vanishing_) {
    for (Windows& windows : windows_) windows.of[series].add(x);
  }
  return first;
}

bool AlertEvaluator::fires(const CheckedRule& checked, double x, double mean, std::uint32_t series) {
  const AlertRule& rule = checked.rule;
  if (rule.anomaly == Anomaly::nan) return is_nan_or_large(x, rule.threshold);
  if (series == kNone) return false;
  if (rule.anomaly == Anomaly::turbulence) return is_turbulent(x, mean, rule.threshold.value_or(0));
  if (rule.anomaly == Anomaly::vanish) return has_vanished(checked, x, series);
  return is_spike(x, windows_[checked.windows].of[series], rule.threshold.value_or(kSpikeThreshold));
}

bool AlertEvaluator::has_vanished(const CheckedRule& checked, double x, std::uint32_t series) {
  if (!std::isfinite(x)) return false;
  std::uint16_t& low = low_counts_[checked.low_counts][series];
  if (!is_low(x, windows_[checked.windows].of[series], checked.rule.fraction)) {
    low = 0;
    return false;
  }
  if (low < kMostLow) ++low;
  if (low < checked.rule.steps) vanishing_ = true;
  return low == checked.rule.steps;
}

void AlertEvaluator::add_finding(const Finding& finding) {
  note_fired(finding);
  if (findings_.first.size() < kMostFindings) {
    findings_.first.push_back(finding);
  } else {
    ++findings_.left_out;
  }
}

void AlertEvaluator::note_fired(const Finding& finding) {
  const std::uint8_t bit = bit_of(finding.anomaly);
  if ((fired_bits_ & bit) == 0 || finding.value == static_cast<std::uint8_t>(Op::norm))
    fired_[static_cast<std::size_t>(finding.anomaly)] = finding;
  fired_bits_ |= bit;
}

// Call it after the values of a row.
void AlertEvaluator::begin_alerts(Kind kind, std::uint32_t series) {
  std::uint8_t begins = 0;
  if (series != kNone) {
    begins = renew(active_[series], fired_bits_);
  } else {
    for (std::size_t i = 0; i < others_active_.size(); ++i) {
      const auto bit = bit_of(static_cast<Anomaly>(i));
      if (others_active_[i] == 0)
        begins = static_cast<std::uint8_t>(begins | (fired_bits_ & ~others_fired_ & bit));
    }
    others_fired_ |= fired_bits_;
  }
  for (std::size_t anomaly = 0; begins >> anomaly != 0; ++anomaly) {
    if ((begins >> anomaly & 1U) == 0) continue;
    Begun& begun = begun_[anomaly];
    ++begun.count;
    auto& findings = kind == Kind::scalar ? begun.of_scalars : begun.of_tensors;
    if (findings.size() < kMostFindings) findings.push_back(fired_[anomaly]);
  }
}

// Counts a step. Returns the bits of the anomalies that begin.
std::uint8_t AlertEvaluator::renew(ActiveSteps& active, std::uint8_t fired) {
  std::uint8_t begins = 0;
  for (std::size_t i = 0; i < active.size(); ++i) {
    const auto bit = bit_of(static_cast<Anomaly>(i));
    if ((fired & bit) == 0) {
      if (active[i] > 0) --active[i];
      continue;
    }
    if (active[i] == 0) begins = static_cast<std::uint8_t>(begins | bit);
    active[i] = static_cast<Anomaly>(i) == Anomaly::nan ? 1 : kStepsToEnd;
  }
  return begins;
}

void AlertEvaluator::choose_begun() {
  findings_.begun.clear();
  const auto kinds = static_cast<std::size_t>(
      std::count_if(begun_.begin(), begun_.end(), [](const Begun& begun) { return begun.count > 0; }));
  for (const Anomaly anomaly :
       {Anomaly::nan, Anomaly::spike, Anomaly::turbulence, Anomaly::vanish, Anomaly::rank_divergence}) {
    Begun& begun = begun_[static_cast<std::size_t>(anomaly)];
    if (begun.count == 0) continue;
    auto& chosen = begun.of_scalars;
    chosen.insert(chosen.end(), begun.of_tensors.begin(), begun.of_tensors.end());
    if (chosen.size() > kMostFindings / kinds) chosen.resize(kMostFindings / kinds);
    chosen.front().left_out = begun.count - chosen.size();
    findings_.begun.insert(findings_.begun.end(), chosen.begin(), chosen.end());
    begun.of_scalars.clear();
    begun.of_tensors.clear();
    begun.count = 0;
  }
}

double AlertEvaluator::mean_of(Kind kind, std::uint32_t target, std::int32_t micro_step,
                               std::uint8_t value) const {
  const auto found = index_.find(series_key(kind, target, micro_step));
  return found == index_.end() ? kNoMean : means_[found->second][value];
}

}  // namespace gradmon
