// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/alert_stages.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "control/files/make_directories.h"

namespace gradmon {
namespace {

AnomalyDump::Directory dump_directory(std::shared_ptr<RunDirectory> run, Rank rank) {
  return [run = std::move(run), rank]() -> tl::expected<std::filesystem::path, std::string> {
    const auto directory = run->output_dir() / "anomaly_detected" / ("rank" + std::to_string(rank.value));
    if (auto made = make_directories(directory); !made) return tl::unexpected(std::move(made.error()));
    return directory;
  };
}

}  // namespace

AlertOrigin alert_origin_of(Rank rank, const std::vector<int>& pipeline) {
  if (pipeline.empty()) return {rank, 0, {rank.value}};
  const auto place = std::find(pipeline.begin(), pipeline.end(), rank.value);
  return {rank, static_cast<int>(place - pipeline.begin()), pipeline};
}

AlertReport report_of(const StepAlerts& alerts) {
  AlertReport report;
  report.left_out = alerts.left_out;
  for (const AlertEvent& event : alerts.events) {
    RankAlert alert;
    alert.rank = event.rank;
    alert.rule = event.rule;
    alert.step = event.step.value;
    alert.micro_step = event.micro_step;
    alert.pp_stage = event.pp_stage;
    alert.vpp_stage = event.vpp_stage;
    alert.call_id = event.call_id;
    alert.tag_name = event.tag_name;
    alert.op = event.op;
    alert.value = event.value;
    alert.history_mean = event.history_mean;
    alert.message = event.message;
    alert.left_out = event.left_out;
    report.alerts.push_back(std::move(alert));
  }
  return report;
}

StepAlerts step_alerts_of(const AlertReport& report, const AlertOrigin& origin) {
  StepAlerts alerts;
  alerts.left_out = report.left_out;
  for (const RankAlert& alert : report.alerts) {
    alerts.step = Step{alert.step};
    AlertEvent event;
    event.rule = alert.rule;
    event.rank = origin.rank;
    event.step = Step{alert.step};
    event.micro_step = static_cast<int>(alert.micro_step);
    event.pp_stage = origin.pp_stage;
    event.vpp_stage = static_cast<int>(alert.vpp_stage);
    event.call_id = alert.call_id;
    event.tag_name = alert.tag_name;
    event.op = alert.op;
    event.value = alert.value;
    event.history_mean = alert.history_mean;
    event.message = alert.message;
    event.left_out = alert.left_out;
    event.group_mates = origin.group_mates;
    alerts.events.push_back(std::move(event));
  }
  return alerts;
}

AlertStages::AlertStages(std::shared_ptr<RunDirectory> directory, AlertOrigin origin,
                         std::shared_ptr<const NameTable> names,
                         std::function<void(const StepAlerts&)> on_alerts)
    : origin_(std::move(origin)),
      names_(std::move(names)),
      on_alerts_(std::move(on_alerts)),
      state_(std::make_shared<AlertState>()),
      dump_(std::make_shared<AnomalyDump>(dump_directory(directory, origin_.rank))),
      flight_(std::make_shared<FlightRecorder>([directory] { return directory->create(); }, names_)) {}

std::unique_ptr<AlertStage> AlertStages::make(const Config& config, OnRecords on_records) const {
  if (config.alert.rules.empty()) return nullptr;
  AlertStage::Settings settings{config.alert.rules,
                                config.alert.dump ? dump_ : nullptr,
                                origin_,
                                names_,
                                flight_,
                                config.keep_last,
                                on_alerts_,
                                std::move(on_records)};
  return std::make_unique<AlertStage>(std::move(settings), state_);
}

void AlertStages::raise_under(const Config& config) {
  std::shared_ptr<AlertStage> raises = make(config);
  const std::lock_guard lock(mutex_);
  raises_ = std::move(raises);
}

void AlertStages::raise(const AlertReport& report, WriterThread& writer) const {
  std::shared_ptr<AlertStage> stage;
  {
    const std::lock_guard lock(mutex_);
    stage = raises_;
  }
  if (!stage || report.alerts.empty()) return;
  // The alerts are reported once; the writes that they request are tried until they succeed.
  struct Raised {
    bool reported = false;
    std::optional<FileToWrite> file;
  };
  writer.write_file([stage, raised = std::make_shared<Raised>(),
                     alerts = step_alerts_of(report, origin_)]() -> tl::expected<void, std::string> {
    if (!std::exchange(raised->reported, true))
      raised->file = stage->report(alerts, std::chrono::steady_clock::now());
    return raised->file ? raised->file->write() : tl::expected<void, std::string>{};
  });
}

std::vector<Alert> AlertStages::recent() const {
  std::vector<Alert> alerts;
  for (const AlertEvent& event : state_->recent.content().events) {
    alerts.push_back({event.rule, event.step.value, event.micro_step, event.pp_stage, event.vpp_stage,
                      event.call_id, event.tag_name, event.op, event.value, event.history_mean,
                      event.message});
  }
  return alerts;
}

}  // namespace gradmon
