// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/alert_event.h"

#include <cstddef>

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
  event.step = Step{record.step};
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

}  // namespace

std::string make_tag_name(const Record& record, const Layout& layout, const NameTable& names, Rank rank) {
  std::string tag = std::to_string(names.vpp_stage(record.target)) + ":" + names.name(record.target);
  if (has_micro_step(record.kind, layout)) tag += ":" + std::to_string(record.micro_step);
  return tag + "/rank" + std::to_string(rank.value) + "/" + task_of(record.kind, layout);
}

std::string alert_message(const AlertEvent& event) {
  std::string text = "Rule " + event.rule + " reports anomaly signal in ('" + event.tag_name + "', '" +
                     event.op + "') at step " + std::to_string(event.step.value) + ", current value ";
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
