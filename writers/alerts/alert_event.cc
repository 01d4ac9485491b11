// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/alert_event.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "control/text/alert_words.h"
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

AlertEvent make_event(const Finding& finding, const std::vector<Record>& records, const Layout& layout,
                      const NameTable& names, const AlertOrigin& origin) {
  const Record& record = records[finding.record];
  AlertEvent event;
  event.rule = name_of(finding.anomaly);
  event.rank = origin.rank;
  event.step = record.step;
  event.micro_step = has_micro_step(record.kind, layout) ? record.micro_step : 0;
  event.pp_stage = origin.pp_stage;
  event.vpp_stage = names.vpp_stage(record.target);
  event.call_id = find_call_id(finding.record, records);
  event.tag_name = make_tag_name(record, layout, names, origin.rank);
  event.op = finding.op;
  event.value = record.values[finding.value];
  event.history_mean = finding.mean;
  event.message = alert_message(event);
  event.group_mates = origin.group_mates;
  event.left_out = finding.left_out;
  return event;
}

constexpr int kDigits = 3;

std::string words_for(const AlertEvent& event) {
  if (event.rule == name_of(Anomaly::nan)) return std::isnan(event.value) ? "NaN" : "large value";
  if (event.rule == name_of(Anomaly::spike)) return "spike";
  if (event.rule == name_of(Anomaly::turbulence)) return "turbulence";
  if (event.rule == name_of(Anomaly::vanish)) return "vanished norm";
  return "ranks differ";
}

// The previous value; "" without a history.
std::string usual_text(const AlertEvent& event) {
  const std::string mean = number_text(event.history_mean, kDigits);
  if (event.rule == name_of(Anomaly::rank_divergence)) return " (other ranks have " + mean + ")";
  const bool first = !std::isfinite(event.history_mean) || event.history_mean == std::fabs(event.value);
  return first ? "" : " (usually " + mean + ")";
}

// "spike at step 120, rank 0: gradient norm of head.output is 24.4 (usually 0.086), and 91 more series"
std::string line_of(const AlertEvent& event, std::uint64_t more) {
  std::string line = words_for(event) + " at step " + std::to_string(event.step) + ", rank " +
                     std::to_string(event.rank.value) + ": " + series_text(event.tag_name, event.op) +
                     " is " + number_text(event.value, kDigits) + usual_text(event);
  return more == 0 ? line : line + ", and " + std::to_string(more) + " more series";
}

}  // namespace

std::string make_tag_name(const Record& record, const Layout& layout, const NameTable& names, Rank rank) {
  std::string tag = std::to_string(names.vpp_stage(record.target)) + ":" + names.name(record.target);
  if (has_micro_step(record.kind, layout)) tag += ":" + std::to_string(record.micro_step);
  return tag + "/rank" + std::to_string(rank.value) + "/" + task_of(record.kind, layout);
}

std::string alert_message(const AlertEvent& event) {
  std::string text = "Rule " + event.rule + " reports anomaly signal in ('" + event.tag_name + "', '" +
                     event.op + "') at step " + std::to_string(event.step) + ", current value ";
  append_repr(text, event.value);
  text += ", history mean ";
  append_repr(text, event.history_mean);
  return text + ".";
}

StepAlerts describe(const std::vector<Finding>& findings, Step step, const std::vector<Record>& records,
                    const Layout& layout, const NameTable& names, const AlertOrigin& origin) {
  StepAlerts alerts;
  alerts.step = step;
  for (const Finding& finding : findings) {
    alerts.events.push_back(make_event(finding, records, layout, names, origin));
    alerts.left_out += finding.left_out;
  }
  return alerts;
}

std::vector<std::string> AlertLog::lines(const StepAlerts& alerts, Time now) {
  std::vector<std::string> lines;
  for (auto event = alerts.events.begin(); event != alerts.events.end();) {
    const auto next = std::find_if(event, alerts.events.end(),
                                   [&](const AlertEvent& other) { return other.rule != event->rule; });
    const auto more = static_cast<std::uint64_t>(next - event) - 1 + event->left_out;
    OfRule& rule = of(event->rule);
    const auto freed = static_cast<int>(std::min<std::int64_t>((now - rule.counted_to) / kPause, kBurst));
    rule.lines_left = std::min(rule.lines_left + freed, kBurst);
    rule.counted_to = rule.lines_left == kBurst ? now : rule.counted_to + freed * kPause;
    if (rule.lines_left > 0 && rule.logged_step != event->step) {
      --rule.lines_left;
      rule.logged_step = event->step;
      lines.push_back(line_of(*event, more));
      const auto not_logged = std::exchange(rule.not_logged, 0);
      if (not_logged > 0)
        lines.back() += "; " + std::to_string(not_logged) + " more alerts of " + event->rule +
                        " since step " + std::to_string(rule.since) + " are not in the log";
    } else {
      if (rule.not_logged == 0) rule.since = event->step;
      rule.not_logged += more + 1;
    }
    event = next;
  }
  return lines;
}

// An unknown rule shares the last place.
AlertLog::OfRule& AlertLog::of(const std::string& rule) {
  const auto found = std::find(kAnomalyNames.begin(), kAnomalyNames.end(), rule);
  return rules_[std::min<std::size_t>(static_cast<std::size_t>(found - kAnomalyNames.begin()),
                                      rules_.size() - 1)];
}

RecentAlerts::Content RecentAlerts::content() const {
  const std::lock_guard lock(mutex_);
  return {{events_.begin(), events_.end()}, total_};
}

void RecentAlerts::add(const StepAlerts& alerts) {
  const std::lock_guard lock(mutex_);
  total_ += alerts.events.size() + alerts.left_out;
  for (const AlertEvent& event : alerts.events) {
    if (events_.size() == kMostKept) events_.pop_front();
    events_.push_back(event);
  }
}

}  // namespace gradmon
