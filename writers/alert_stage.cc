// SPDX-License-Identifier: Apache-2.0
#include "writers/alert_stage.h"

#include <string>
#include <utility>

#include "control/log.h"

namespace gradmon {
namespace {

// Joins two files into one write. Each call tries both; the error is the first one's.
std::optional<FileToWrite> both(std::optional<FileToWrite> a, std::optional<FileToWrite> b) {
  if (!a || !b) return a ? std::move(a) : std::move(b);
  return FileToWrite{[a = std::move(*a), b = std::move(*b)] {
    auto first = a.write();
    auto second = b.write();
    return first ? second : first;
  }};
}

}  // namespace

AlertStage::AlertStage(Settings settings, std::shared_ptr<AlertState> state)
    : settings_(std::move(settings)), state_(std::move(state)) {}

void AlertStage::begin_revision(const Layout& layout) {
  layout_ = layout;
  state_->evaluator.set_rules(settings_.rules);
  if (settings_.flight) settings_.flight->begin(settings_.keep_last, layout);
}

std::optional<FileToWrite> AlertStage::on_step(Step step, const RecordBatch& records, Time now) {
  on_replicas(step, records);
  return on_flight(step, records, now);
}

std::optional<FileToWrite> AlertStage::on_flight(Step step, const RecordBatch& records, Time now) {
  if (settings_.flight) settings_.flight->keep(step, records);
  const Findings& findings = evaluate(records);
  const auto described = [&](const std::vector<Finding>& these) {
    return describe(these, records, layout_, *settings_.names, settings_.origin);
  };
  const AlertReport begun = described(findings.begun);
  if (!begun.alerts.empty()) tell(begun, now);
  const bool dumps = settings_.dump && !findings.first.empty();
  auto dump = dumps ? settings_.dump->add(described(findings.first).alerts) : std::nullopt;
  // Other rows of this step may have raised an alert.
  const bool alerted = settings_.flight && (!begun.alerts.empty() || settings_.flight->alerted(step));
  return both(std::move(dump), alerted ? settings_.flight->on_alert(step) : std::nullopt);
}

std::optional<FileToWrite> AlertStage::report(const AlertReport& report, Time now) {
  tell(report, now);
  auto dump = settings_.dump ? settings_.dump->add(report.alerts) : std::nullopt;
  const Step step{report.alerts.front().step};
  auto flight = settings_.flight ? settings_.flight->on_alert(step) : std::nullopt;
  return both(std::move(dump), std::move(flight));
}

void AlertStage::tell(const AlertReport& report, Time now) {
  for (const std::string& line : state_->log.lines(report, now)) log_warn(line);
  state_->recent.add(report);
  if (settings_.on_alerts) settings_.on_alerts(report);
}

const Findings& AlertStage::evaluate(const RecordBatch& records) {
  const std::uint64_t unknown = state_->evaluator.rows_without_series();
  const Findings& findings = state_->evaluator.evaluate(layout_, records);
  if (unknown == 0 && state_->evaluator.rows_without_series() > 0) {
    log_warn("more than " + std::to_string(AlertEvaluator::kMostSeries) +
             " rows: of the others, only AnomalyNan looks at the values");
  }
  return findings;
}

}  // namespace gradmon
