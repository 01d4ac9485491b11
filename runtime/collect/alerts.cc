// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/alerts.h"

#include <algorithm>
#include <exception>

#include "control/files/file_access.h"
#include "control/log.h"
#include "hooks/rows/target_names.h"

namespace gradmon {
namespace {

AnomalyDump::Directory dump_directory(std::shared_ptr<RunDirectory> run, Rank rank) {
  return [run = std::move(run), rank]() -> tl::expected<std::filesystem::path, std::string> {
    const auto directory = run->output_dir() / "anomaly_detected" / ("rank" + std::to_string(rank.value));
    if (auto made = make_directories(directory); !made) return tl::unexpected(std::move(made.error()));
    return directory;
  };
}

constexpr std::array<Kind, 3> kCompared{Kind::grad_reduced, Kind::param_origin, Kind::param_updated};

}  // namespace

AlertOrigin find_alert_origin(Rank rank, const std::vector<int>& pipeline) {
  if (pipeline.empty()) return {rank, 0, {rank.value}};
  const auto place = std::find(pipeline.begin(), pipeline.end(), rank.value);
  return {rank, static_cast<int>(place - pipeline.begin()), pipeline};
}

AlertStages::AlertStages(std::shared_ptr<RunDirectory> directory, AlertOrigin origin,
                         std::shared_ptr<const NameTable> names,
                         std::function<void(const AlertReport&)> on_alerts)
    : origin_(std::move(origin)),
      names_(std::move(names)),
      on_alerts_(std::move(on_alerts)),
      state_(std::make_shared<AlertState>()),
      dump_(std::make_shared<AnomalyDump>(dump_directory(directory, origin_.rank), origin_.group_mates)),
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

void AlertStages::raise(AlertReport report, WriterThread& writer) const {
  const std::shared_ptr<AlertStage> stage = raises_.get();
  if (!stage || report.alerts.empty()) return;
  for (Alert& alert : report.alerts) {
    alert.number = 0;
    alert.at = 0;
    alert.rank = origin_.rank;
    alert.pp_stage = origin_.pp_stage;
  }
  // The alerts are reported once; the writes that they request are tried until they succeed.
  struct Raised {
    bool reported = false;
    std::optional<FileToWrite> file;
  };
  writer.write_file([stage, raised = std::make_shared<Raised>(),
                     report = std::move(report)]() -> tl::expected<void, std::string> {
    if (!std::exchange(raised->reported, true))
      raised->file = stage->report(report, std::chrono::steady_clock::now());
    return raised->file ? raised->file->write() : tl::expected<void, std::string>{};
  });
}

std::vector<std::string> flight_warnings(const FlightRecorder::Counts& counts) {
  std::vector<std::string> warnings;
  if (counts.lost > 0)
    warnings.push_back("flight recorder: " + std::to_string(counts.lost) + " rows lost, " +
                       std::to_string(counts.written) + " written");
  if (counts.full)
    warnings.push_back("flight recorder: full, " + std::to_string(counts.written) + " rows written");
  return warnings;
}

std::optional<AlertRule> find_divergence_rule(const Config& config) {
  const auto& rules = config.alert.rules;
  const auto found = std::find_if(rules.begin(), rules.end(), [](const AlertRule& rule) {
    return rule.anomaly == Anomaly::rank_divergence;
  });
  return found == rules.end() ? std::nullopt : std::optional(*found);
}

void ReplicaRowReader::on_records(Step step, const RecordBatch& records) {
  ReplicaStep found{group_, threshold_, {}};
  for (const Kind kind : kCompared) {
    ReplicaRows rows;
    std::vector<std::uint32_t> ids;
    for (std::size_t row = 0; row < records.size(); ++row) {
      if (records.kind(row) != kind) continue;
      const Record record = records[row];
      const bool in_part = (record.mask & kSampleMarks) != 0;  // its values are estimates
      if (in_part || left_out_.count(record.target) != 0 || ids.size() >= kMostRows) continue;
      if (ids.empty()) rows = {{record.revision}, step.value, kind, record.mask, nullptr, {}};
      ids.push_back(record.target);
      for (const Op op : ops_in(rows.ops)) rows.values.push_back(record.values[static_cast<std::size_t>(op)]);
    }
    if (ids.empty()) continue;
    rows.targets = share_targets(kind, std::move(ids));
    found.kinds.push_back(std::move(rows));
  }
  if (!found.kinds.empty()) on_step_(std::move(found));
}

std::shared_ptr<const ReplicaTargets> ReplicaRowReader::share_targets(Kind kind,
                                                                      std::vector<std::uint32_t> ids) {
  Known& known = known_[static_cast<std::size_t>(kind)];
  if (known.targets && known.ids == ids) return known.targets;
  auto targets = std::make_shared<ReplicaTargets>();
  for (const std::uint32_t id : ids) targets->emplace_back(names_->vpp_stage(id), names_->name(id));
  known = {std::move(ids), std::move(targets)};
  return known.targets;
}

std::set<std::uint32_t> not_replicated(const WatchedModel& model, Squash squash, NameTable& names) {
  const auto shown = row_names(model, squash);
  const std::vector<std::string>& in_rows = shown->parameters;
  std::set<std::uint32_t> targets;
  for (std::size_t i = 0; i < in_rows.size(); ++i) {
    if (!model.parameters[i].replicated)
      targets.insert(names.intern(in_rows[i], model.parameters[i].vpp_stage));
  }
  return targets;
}

}  // namespace gradmon
