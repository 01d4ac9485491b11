// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/alert_description.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "control/text/words.h"
#include "writers/sinks/columns.h"
#include "writers/sinks/csv_text.h"

namespace gradmon {
namespace {

// If rows were read at the same time, the earlier one in `records` counts first.
std::uint64_t find_call_id(std::size_t row, const std::vector<Record>& records) {
  const std::int64_t read_at = records[row].read_at;
  std::uint64_t earlier = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].read_at < read_at || (records[i].read_at == read_at && i < row)) ++earlier;
  }
  return earlier;
}

Alert make_alert(const Finding& finding, const std::vector<Record>& records, const Layout& layout,
                 const NameTable& names, const AlertOrigin& origin) {
  const Record& record = records[finding.record];
  Alert alert;
  alert.rule = name_of(finding.anomaly);
  alert.rank = origin.rank;
  alert.step = record.step;
  alert.micro_step = has_micro_step(record.kind, layout) ? record.micro_step : 0;
  alert.pp_stage = origin.pp_stage;
  alert.vpp_stage = names.vpp_stage(record.target);
  alert.call_id = find_call_id(finding.record, records);
  alert.tag_name = make_tag_name(record, layout, names, origin.rank);
  alert.op = finding.op;
  alert.value = record.values[finding.value];
  alert.history_mean = finding.mean;
  alert.message = alert_message(alert);
  alert.left_out = finding.left_out;
  return alert;
}

constexpr int kDigits = 3;

std::string words_for(const Alert& alert) {
  if (alert.rule == name_of(Anomaly::nan)) return std::isnan(alert.value) ? "NaN" : "large value";
  if (alert.rule == name_of(Anomaly::spike)) return "spike";
  if (alert.rule == name_of(Anomaly::turbulence)) return "turbulence";
  if (alert.rule == name_of(Anomaly::vanish)) return "vanished norm";
  return "ranks differ";
}

// The previous value; "" without a history.
std::string usual_text(const Alert& alert) {
  const std::string mean = number_text(alert.history_mean, kDigits);
  if (alert.rule == name_of(Anomaly::rank_divergence)) return " (other ranks have " + mean + ")";
  const bool first = !std::isfinite(alert.history_mean) || alert.history_mean == std::fabs(alert.value);
  return first ? "" : " (usually " + mean + ")";
}

// "spike at step 120, rank 0: gradient norm of head.output is 24.4 (usually 0.086), and 91 more series"
std::string line_of(const Alert& alert, std::uint64_t more) {
  std::string line = words_for(alert) + " at step " + std::to_string(alert.step) + ", rank " +
                     std::to_string(alert.rank.value) + ": " + series_text(alert.tag_name, alert.op) +
                     " is " + number_text(alert.value, kDigits) + usual_text(alert);
  return more == 0 ? line : line + ", and " + std::to_string(more) + " more series";
}

}  // namespace

std::string make_tag_name(const Record& record, const Layout& layout, const NameTable& names, Rank rank) {
  std::string tag = std::to_string(names.vpp_stage(record.target)) + ":" + names.name(record.target);
  if (has_micro_step(record.kind, layout)) tag += ":" + std::to_string(record.micro_step);
  return tag + "/rank" + std::to_string(rank.value) + "/" + task_of(record.kind, layout);
}

std::string alert_message(const Alert& alert) {
  std::string text = "Rule " + alert.rule + " reports anomaly signal in ('" + alert.tag_name + "', '" +
                     alert.op + "') at step " + std::to_string(alert.step) + ", current value ";
  append_repr(text, alert.value);
  text += ", history mean ";
  append_repr(text, alert.history_mean);
  return text + ".";
}

AlertReport describe(const std::vector<Finding>& findings, const std::vector<Record>& records,
                     const Layout& layout, const NameTable& names, const AlertOrigin& origin) {
  AlertReport report;
  for (const Finding& finding : findings) {
    report.alerts.push_back(make_alert(finding, records, layout, names, origin));
    report.left_out += finding.left_out;
  }
  return report;
}

std::vector<std::string> AlertLog::lines(const AlertReport& report, Time now) {
  std::vector<std::string> lines;
  for (auto alert = report.alerts.begin(); alert != report.alerts.end();) {
    const auto next = std::find_if(alert, report.alerts.end(),
                                   [&](const Alert& other) { return other.rule != alert->rule; });
    const auto more = static_cast<std::uint64_t>(next - alert) - 1 + alert->left_out;
    OfRule& rule = of(alert->rule);
    const auto freed = static_cast<int>(std::min<std::int64_t>((now - rule.counted_to) / kPause, kBurst));
    rule.lines_left = std::min(rule.lines_left + freed, kBurst);
    rule.counted_to = rule.lines_left == kBurst ? now : rule.counted_to + freed * kPause;
    if (rule.lines_left > 0 && rule.logged_step != alert->step) {
      --rule.lines_left;
      rule.logged_step = alert->step;
      lines.push_back(line_of(*alert, more));
      const auto not_logged = std::exchange(rule.not_logged, 0);
      if (not_logged > 0)
        lines.back() += "; " + std::to_string(not_logged) + " more alerts of " + alert->rule +
                        " since step " + std::to_string(rule.since) + " are not in the log";
    } else {
      if (rule.not_logged == 0) rule.since = alert->step;
      rule.not_logged += more + 1;
    }
    alert = next;
  }
  return lines;
}

// An unknown rule shares the last place.
AlertLog::OfRule& AlertLog::of(const std::string& rule) {
  const auto found = std::find(kAnomalyNames.begin(), kAnomalyNames.end(), rule);
  return rules_[std::min<std::size_t>(static_cast<std::size_t>(found - kAnomalyNames.begin()),
                                      rules_.size() - 1)];
}

std::vector<Alert> RecentAlerts::alerts() const {
  const std::lock_guard lock(mutex_);
  return {alerts_.begin(), alerts_.end()};
}

void RecentAlerts::add(const AlertReport& report) {
  const std::lock_guard lock(mutex_);
  for (const Alert& alert : report.alerts) {
    if (alerts_.size() == kMostKept) alerts_.pop_front();
    alerts_.push_back(alert);
  }
}

}  // namespace gradmon
