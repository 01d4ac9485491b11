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

struct WaitingRows {
  WaitingRows(StepRows::Taken of_step, std::shared_ptr<std::atomic<std::int64_t>> of_all_steps)
      : taken(std::move(of_step)),
        count(static_cast<std::int64_t>(taken.rows.size())),
        waiting(std::move(of_all_steps)) {
    *waiting += count;
  }
  ~WaitingRows() { *waiting -= count; }
  WaitingRows(const WaitingRows&) = delete;
  WaitingRows& operator=(const WaitingRows&) = delete;

  StepRows::Taken taken;
  const std::int64_t count;
  const std::shared_ptr<std::atomic<std::int64_t>> waiting;
};

// Settings of hooks beside the plan's own, for rows of the same names and values. They read nothing yet.
HookSettings settings_beside(const HookSettings& plan) {
  HookSettings settings;
  settings.revision = plan.revision;
  settings.selection = plan.selection;
  settings.squash_name = plan.squash_name;
  settings.ops = plan.ops;
  settings.eps = plan.eps;
  settings.gradient_scales = plan.gradient_scales;
  return settings;
}

constexpr std::array<Kind, 3> kCompared{Kind::grad_reduced, Kind::param_origin, Kind::param_updated};

bool is_read_for_comparison(const WatchedParameter& parameter) {
  return parameter.replicated && parameter.author == RowAuthor::this_rank_unreduced_only;
}

// The model with the rows of those parameters only. Lists everything, so that the names stay the same.
WatchedModel replicas_in(const WatchedModel& model) {
  WatchedModel replicas = model;
  for (WatchedParameter& parameter : replicas.parameters)
    parameter.author = is_read_for_comparison(parameter) ? RowAuthor::this_rank : RowAuthor::another_rank;
  return replicas;
}

std::set<std::uint32_t> not_replicated(const WatchedModel& model, Squash squash, NameTable& names) {
  const auto in_rows = row_names(model, squash).parameters;
  std::set<std::uint32_t> targets;
  for (std::size_t i = 0; i < in_rows.size(); ++i) {
    if (!model.parameters[i].replicated)
      targets.insert(names.intern(in_rows[i], model.parameters[i].vpp_stage));
  }
  return targets;
}

}  // namespace

AlertOrigin find_alert_origin(Rank rank, const std::vector<int>& pipeline) {
  if (pipeline.empty()) return {rank, 0, {rank.value}};
  const auto place = std::find(pipeline.begin(), pipeline.end(), rank.value);
  return {rank, static_cast<int>(place - pipeline.begin()), pipeline};
}

AlertReport to_report(const StepAlerts& alerts) {
  return {{alerts.events.begin(), alerts.events.end()}, alerts.left_out};
}

StepAlerts to_step_alerts(const AlertReport& report, const AlertOrigin& origin) {
  StepAlerts alerts;
  alerts.left_out = report.left_out;
  for (const RankAlert& alert : report.alerts) {
    alerts.step = Step{alert.step};
    AlertEvent& event = alerts.events.emplace_back(AlertEvent{alert, origin.group_mates});
    event.number = 0;
    event.at = 0;
    event.rank = origin.rank;
    event.pp_stage = origin.pp_stage;
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
                     alerts = to_step_alerts(report, origin_)]() -> tl::expected<void, std::string> {
    if (!std::exchange(raised->reported, true))
      raised->file = stage->report(alerts, std::chrono::steady_clock::now());
    return raised->file ? raised->file->write() : tl::expected<void, std::string>{};
  });
}

std::vector<Alert> AlertStages::recent() const {
  std::vector<Alert> alerts;
  for (const AlertEvent& event : state_->recent.content().events) {
    alerts.push_back({event.rule, event.step, static_cast<int>(event.micro_step),
                      static_cast<int>(event.pp_stage), static_cast<int>(event.vpp_stage), event.call_id,
                      event.tag_name, event.op, event.value, event.history_mean, event.message});
  }
  return alerts;
}

std::uint32_t StepRows::target_id(int vpp_stage, std::string_view name) {
  return names_->intern(name, vpp_stage);
}

std::uint32_t StepRows::shape_id(std::string_view shape) { return names_->intern_shape(shape); }

bool StepRows::push(const Record& record) noexcept {
  if (record.target == 0) return true;  // dropped: NameTable::intern()
  try {
    rows_.push_back(record);
  } catch (const std::exception&) {
    return false;
  }
  if (observer_ != nullptr) observer_->on_record(record);
  return true;
}

void StepRows::note_missing_row(Kind kind) noexcept {
  if (observer_ != nullptr) observer_->on_missing_row(kind);
}

bool StepRows::take_late(const std::shared_ptr<LateValues>& late) noexcept {
  if (observer_ != nullptr && observer_->takes_norms()) return false;
  late_ = late;
  return true;
}

std::vector<Record>& StepRows::Taken::completed() {
  complete_records(rows, std::exchange(late, nullptr).get());
  return rows;
}

std::shared_ptr<StepRows::Taken> StepRows::take() {
  const std::int64_t before = *waiting_;
  if (before > 0 && before + static_cast<std::int64_t>(rows_.size()) > kMostWaiting) return nullptr;
  std::vector<Record> next;
  next.reserve(rows_.size());  // most steps have as many rows
  const auto waiting = std::make_shared<WaitingRows>(
      Taken{std::exchange(rows_, std::move(next)), std::exchange(late_, nullptr)}, waiting_);
  return {waiting, &waiting->taken};
}

// The rows of a step on their way to the alert rules. Rows that do not arrive are counted as lost.
struct FlightSteps::Waiting {
  Waiting(const Context& context, Step of, std::shared_ptr<StepRows::Taken> rows_of_step)
      : recorder(context.recorder),
        stage(context.stage),
        samples(context.samples),
        step(of),
        taken(std::move(rows_of_step)) {}
  ~Waiting() {
    if (!looked_at) recorder->count_lost(taken->rows.size());
  }

  // The rules see the rows once; the writes that they request are tried until they succeed.
  tl::expected<void, std::string> write() {
    if (!looked_at) {
      looked_at = true;
      std::vector<Record>& rows = taken->completed();
      if (samples) samples->amend(rows);
      file = stage->on_step(step, rows, std::chrono::steady_clock::now());
      taken->rows = {};
    }
    return file ? file->write() : tl::expected<void, std::string>{};
  }

  const std::shared_ptr<FlightRecorder> recorder;
  const std::shared_ptr<AlertStage> stage;
  const std::shared_ptr<ResumedSamples> samples;
  const Step step;
  const std::shared_ptr<StepRows::Taken> taken;
  bool looked_at = false;
  std::optional<FileToWrite> file;
};

FlightSteps::FlightSteps(const Config& config, const Layout& layout, Context context)
    : context_(std::move(context)), rows_(context_.names), scalar_rows_(context_.names) {
  context_.writer.write_file([stage = context_.stage, layout]() -> tl::expected<void, std::string> {
    stage->begin_revision(layout);
    return {};
  });
  if (config.scalars.empty()) return;
  scalars_ = std::make_unique<TrainingScalars>(
      config, layout.revision,
      TrainingScalars::Context{context_.rank, context_.world_size, context_.names, scalar_rows_,
                               context_.writer, context_.samples, TrainingScalars::Steps::between});
}

FlightSteps::~FlightSteps() = default;

void FlightSteps::attach(const HookSettings& plan, const WatchedModel& model) {
  HookSettings settings = settings_beside(plan);
  settings.reduced_gradients = true;
  settings.ops = bit_of(Op::norm) | bit_of(Op::nans);
  plan_reads_gradients_ = plan.gradients;
  hooks_.reset();
  hooks_ = std::make_unique<HookSet>(settings, model, rows_);
  if (scalars_) scalars_->attach(settings, model);
}

void FlightSteps::begin_step(Step step, HookSet::Collect collect, std::int64_t samples) noexcept {
  step_ = step;
  between_ = collect == HookSet::Collect::no;
  rows_.clear();
  rows_.set_observer(between_ ? scalars_.get() : nullptr);
  if (hooks_) hooks_->begin_step(step, reads_gradients());
  if (scalars_) scalars_->begin_step(step, between_ ? HookSet::Collect::yes : HookSet::Collect::no, samples);
}

HookSet::Collect FlightSteps::reads_gradients() const noexcept {
  return between_ || !plan_reads_gradients_ ? HookSet::Collect::yes : HookSet::Collect::no;
}

void FlightSteps::begin_hooks() noexcept {
  if (hooks_) hooks_->begin_step(step_, reads_gradients());
  if (scalars_ && between_) scalars_->begin_hooks(step_);
}

void FlightSteps::report(std::string_view name, double value) noexcept {
  if (scalars_ && between_) scalars_->report(name, value);
}

void FlightSteps::count_experts(std::string_view layer, const std::vector<std::int64_t>& tokens) noexcept {
  if (scalars_ && between_) scalars_->count_experts(layer, tokens);
}

void FlightSteps::end_step(std::int64_t samples) noexcept {
  if (hooks_) hooks_->end_step();
  send(rows_);
  if (!scalars_ || !between_) return;
  scalars_->end_step(samples);
  send(scalar_rows_);
}

bool FlightSteps::report_late(std::string_view name, double value) noexcept {
  const bool taken = !scalars_ || scalars_->report_late(name, value);
  if (!awaits_scalars()) settle();
  return taken;
}

void FlightSteps::settle() noexcept {
  if (scalars_) scalars_->settle();
  send(scalar_rows_);
}

void FlightSteps::drop_step() noexcept {
  if (hooks_) hooks_->end_step();
  rows_.clear();
}

void FlightSteps::send(StepRows& from) noexcept {
  if (from.size() == 0) return;
  try {
    auto rows = from.take();
    if (!rows) return context_.recorder->count_lost(from.size());
    const Step step{rows->rows.front().step};
    const auto waiting = std::make_shared<Waiting>(context_, step, std::move(rows));
    context_.writer.write_file([waiting] { return waiting->write(); });
  } catch (const std::exception& error) {
    log_error(std::string("a step is missing in the flight recorder: ") + error.what());
  }
}

std::optional<HookFailure> FlightSteps::failure() const {
  auto failure = hooks_ ? hooks_->failure() : std::nullopt;
  return !failure && scalars_ ? scalars_->failure() : failure;
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

void ReplicaRowReader::on_records(Step step, const std::vector<Record>& records) {
  ReplicaStep found{group_, threshold_, {}};
  for (const Kind kind : kCompared) {
    ReplicaRows rows;
    std::vector<std::uint32_t> ids;
    for (const Record& record : records) {
      if (record.kind != kind || left_out_.count(record.target) != 0 || ids.size() >= kMostRows) continue;
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

ReplicaSteps::ReplicaSteps(Context context) : context_(std::move(context)), rows_(context_.names) {}

ReplicaSteps::~ReplicaSteps() = default;

void ReplicaSteps::attach(const HookSettings& plan, const WatchedModel& model) {
  hooks_.reset();
  context_.writer.write_file(
      [reader = context_.reader,
       targets =
           not_replicated(model, plan.squash_name, *context_.names)]() -> tl::expected<void, std::string> {
        reader->leave_out(targets);
        return {};
      });
  HookSettings settings = settings_beside(plan);
  settings.reduced_gradients = plan.gradients || plan.reduced_gradients;
  settings.weights = plan.weights;
  const bool reads = std::any_of(model.parameters.begin(), model.parameters.end(), is_read_for_comparison);
  if (reads && (settings.reduced_gradients || settings.weights))
    hooks_ = std::make_unique<HookSet>(settings, replicas_in(model), rows_);
}

void ReplicaSteps::begin_step(Step step, HookSet::Collect collect) noexcept {
  step_ = step;
  rows_.clear();
  if (hooks_) hooks_->begin_step(step, collect);
}

void ReplicaSteps::end_step() noexcept {
  if (hooks_) hooks_->end_step();
  if (rows_.size() == 0) return;
  try {
    const auto rows = rows_.take();
    if (!rows) {
      if (!std::exchange(refusal_logged_, true))
        log_warn("AnomalyRankDivergence: the writer is behind, so that steps are not compared");
      return;
    }
    context_.writer.write_file(
        [reader = context_.reader, step = step_, rows]() -> tl::expected<void, std::string> {
          reader->on_records(step, rows->completed());
          return {};
        });
  } catch (const std::exception& error) {
    log_error(std::string("a step is not compared with other ranks: ") + error.what());
  }
}

void ReplicaSteps::drop_step() noexcept {
  if (hooks_) hooks_->end_step();
  rows_.clear();
}

}  // namespace gradmon
