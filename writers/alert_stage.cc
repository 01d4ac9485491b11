// SPDX-License-Identifier: Apache-2.0
#include "writers/alert_stage.h"

#include <string>
#include <utility>

#include "control/log.h"

namespace gradmon {

AlertStage::AlertStage(Settings settings, std::shared_ptr<AlertState> state)
    : settings_(std::move(settings)), state_(std::move(state)) {}

void AlertStage::begin_revision(const Layout& layout) {
  layout_ = layout;
  state_->evaluator.set_rules(settings_.rules);
}

std::optional<FileToWrite> AlertStage::on_step(Step step, const std::vector<Record>& records, Time now) {
  const std::uint64_t unknown = state_->evaluator.rows_without_series();
  const Findings& findings = state_->evaluator.evaluate(layout_, records);
  if (unknown == 0 && state_->evaluator.rows_without_series() > 0) {
    log_warn("more than " + std::to_string(AlertEvaluator::kMostSeries) +
             " rows: of the others, only AnomalyNan looks at the values");
  }
  if (findings.first.empty()) return std::nullopt;
  const StepAlerts alerts = describe(findings, step, records, layout_, *settings_.names, settings_.origin);
  for (const std::string& line : state_->log.lines(alerts, now)) log_warn(line);
  state_->recent.add(alerts);
  if (settings_.on_alerts) settings_.on_alerts(alerts);
  return settings_.dump ? settings_.dump->add(alerts.events) : std::nullopt;
}

}  // namespace gradmon
