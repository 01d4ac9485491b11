// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/collection.h"

#include <ATen/SequenceNumber.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "control/agree/plan.h"
#include "control/config/config_schema.h"
#include "control/host/child_process.h"
#include "control/log.h"
#include "hooks/device/cuda_totals.h"
#include "hooks/rows/target_names.h"
#include "runtime/collect/expected_targets.h"
#include "runtime/collect/plan_settings.h"
#include "writers/queue/record_queue.h"
#include "writers/sink_table.h"
#include "writers/sinks/columns.h"

namespace gradmon {
namespace {

constexpr std::chrono::seconds kQueueHolds{2};  // longest wait for a full queue, per step

QueueOptions queue_options(std::int64_t capacity) {
  QueueOptions options;
  options.capacity = static_cast<std::size_t>(capacity);
  options.max_wait = kQueueHolds;
  return options;
}

// Longest waits of last_rows(): the writer thread itself waits for the job's identity.
constexpr std::chrono::milliseconds kWaitForRows{1000};
constexpr std::chrono::milliseconds kWaitForFirstRows = kWaitForRows + RunDirectory::kIdentityWithin;
constexpr std::chrono::milliseconds kPollPause{1};
// Autograd nodes of a logged value: `loss / steps`. A model's forward makes more.
constexpr std::uint64_t kNodesForLog = 2;
// A program may report a scalar in some of its steps only.
constexpr int kStepsUntilMissed = 100;
constexpr const char* kNoRules = "keep_last has no effect without alert rules (alert.rules)";
constexpr const char* kObserve =
    "call gradmon::observe(module)(x) instead of module->forward(x) (gradmon/observe.h)";
constexpr const char* kNothingEnabled =
    "on, but the config enables no kind of row (set wg_distribution, xy_distribution, ...)";
constexpr const char* kNoReplicas =
    "AnomalyRankDivergence has no effect: the monitor knows no other rank with the same parameters (watch "
    "the DistributedDataParallel itself, or pass dp_group)";
constexpr const char* kReplicasUnknown =
    "\"replicas\": \"first\" has no effect: the monitor knows no other rank with the same parameters (watch "
    "the DistributedDataParallel itself, or pass dp_group)";

}  // namespace

// The destination of the rows of a Collection's hooks.
class Collection::Stream : public RecordStream {
 public:
  Stream(NameTable& names, RecordQueue& queue, TargetLedger& ledger, ScopeNotes& scopes, Settings settings,
         WriterThread& writer, std::function<void(const std::string&)> on_absence)
      : names_(names),
        queue_(queue),
        ledger_(ledger),
        scopes_(scopes),
        settings_(std::move(settings)),
        writer_(writer),
        on_absence_(std::move(on_absence)) {}
  std::uint32_t target_id(int vpp_stage, std::string_view name) override {
    const std::uint32_t id = names_.intern(name, vpp_stage);
    if (id == 0) on_absence_("too many different names of rows: those with further ones are left out");
    return id;
  }
  std::uint32_t scale_target_id(std::uint32_t target) override {
    return names_.intern(names_.name(target) + ".scale", names_.vpp_stage(target));
  }
  std::uint32_t shape_id(std::string_view shape) override { return names_.intern_shape(shape); }
  bool push(const Record& record) noexcept override {
    if (record.target == 0) return true;  // dropped: NameTable::intern()
    if (scalars_ && (record.readers & kForNorms) != 0) scalars_->on_record(record);
    if ((record.readers & kForRows) != 0) {
      // The target has fired, even if the queue drops the record.
      ledger_.count_row(record.kind, record.target);
      scopes_.count_row(record.kind, record.target);
    }
    if (held_ == nullptr) return queue_.push(record);
    try {
      held_->push_back(record);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }
  bool push(const Histogram& histogram) noexcept override {
    if (histogram.target == 0) return true;
    ledger_.count_row(histogram.kind, histogram.target);
    scopes_.count_row(histogram.kind, histogram.target);
    return queue_.push(histogram);
  }
  bool take_late(const std::shared_ptr<LateValues>& late) noexcept override {
    queue_.set_late_values(late);
    return true;
  }
  void note_missing_row(Kind kind) noexcept override {
    if (scalars_) scalars_->on_missing_row(kind);
  }
  void note_reason(Kind kind, std::uint32_t target, std::string_view why) noexcept override {
    ledger_.note_reason(kind, target, why);
  }
  void note_absence(const std::string& sentence) override { on_absence_(sentence); }
  void note_scope(Kind kind, std::uint32_t target, const ScopeText& scope) noexcept override {
    scopes_.note(kind, target, scope);
  }
  void publish(Document document, std::string text) noexcept override {
    writer_.write_file(writes_[static_cast<std::size_t>(document)].next(
        [directory = settings_.directory, rank = settings_.rank, document, text = std::move(text)] {
          return write_document(*directory, rank, document, text);
        }));
  }
  // `scalars` gets the norms. Null: nobody. It must live until the next call.
  void set_scalars(TrainingScalars* scalars) { scalars_ = scalars; }
  // Records go to `held` instead of the queue. Null: into the queue.
  void hold(RecordBatch* held) { held_ = held; }

 private:
  TrainingScalars* scalars_ = nullptr;
  RecordBatch* held_ = nullptr;
  NameTable& names_;
  RecordQueue& queue_;
  TargetLedger& ledger_;
  ScopeNotes& scopes_;
  const Settings settings_;
  WriterThread& writer_;
  const std::function<void(const std::string&)> on_absence_;
  std::array<ReplacingWrites, 2> writes_;  // by Document
};

// Adds the time of its scope to own_time_, minus the time that the hooks measure themselves.
class Collection::OwnTime {
 public:
  explicit OwnTime(Collection& collection)
      : collection_(collection),
        of_hooks_(collection.hooks_time()),
        begun_(std::chrono::steady_clock::now()) {}
  ~OwnTime() {
    collection_.own_time_ +=
        std::chrono::steady_clock::now() - begun_ - (collection_.hooks_time() - of_hooks_);
  }
  OwnTime(const OwnTime&) = delete;
  OwnTime& operator=(const OwnTime&) = delete;

 private:
  Collection& collection_;
  const std::chrono::nanoseconds of_hooks_;
  const std::chrono::steady_clock::time_point begun_;
};

Collection::Collection(Settings settings, WriterThread::OnFinished on_finished)
    : settings_(std::move(settings)),
      names_(std::make_shared<NameTable>(NameTable::kNamesOfARank)),
      queue_(std::make_shared<RecordQueue>(queue_options(settings_.queue_capacity))),
      ledger_(*names_),
      last_(std::make_shared<LastStep>()),
      alerts_(settings_.directory, find_alert_origin(settings_.rank, settings_.pipeline), names_,
              settings_.on_alerts),
      scopes_(*names_, settings_.replicas.size()),
      writer_(queue_, std::move(on_finished)),
      notes_(settings_.ranks ? std::make_unique<RunNotes>(settings_.directory, settings_.world_size,
                                                          settings_.ranks, writer_)
                             : nullptr),
      stream_(std::make_unique<Stream>(*names_, *queue_, ledger_, scopes_, settings_, writer_,
                                       [this](const std::string& sentence) { warn(sentence); })) {
  alerts_.flight()->report_progress(writer_.progress());
  settings_.directory->report_progress(writer_.progress());
}

Collection::~Collection() = default;

void Collection::add_model(const WatchedModel& chunk) {
  std::copy(chunk.parameters.begin(), chunk.parameters.end(), std::back_inserter(model_.parameters));
  std::copy(chunk.modules.begin(), chunk.modules.end(), std::back_inserter(model_.modules));
  keep_names(model_);
  if (notes_) notes_->add_model(chunk);
  attach_again();
}

void Collection::replace_model(const WatchedModel& chunks) {
  model_ = chunks;
  keep_names(model_);
  if (notes_) notes_->add_model(chunks);
  attach_again();
}

void Collection::attach_again() {
  if (!hooks_) return;
  attach();
  if (hooks_ && readers() != 0) hooks_->begin_step(step_, readers());
}

void Collection::swap(const Commitment& commitment, std::shared_ptr<const Config> config) {
  const bool recorded = recording();
  detach();
  logged_warnings_.clear();
  in_force_ = commitment;
  meter_.begin_plan(commitment.revision);
  ledger_.begin_plan();
  if (notes_) notes_->note(commitment);
  {
    const std::lock_guard lock(mutex_);
    overhead_ = meter_.measured();
  }
  if (recorded && !(commitment.plan->on && config && config->keep_last > 0)) forget_flight();
  if (!commitment.plan->on || !config) return;
  config_ = std::move(config);
  queue_->set_overflow(config_->on_overflow == Config::OnOverflow::drop ? Overflow::drop : Overflow::block);
  keeps_last_step_ = settings_.keep_last_step || writes_format(*config_, Config::Format::api);
  alerts_.raise_under(*config_);
  std::function<void(RecordBatch&)> amend;
  if (const auto resumed = resumed_samples())
    amend = [resumed](RecordBatch& records) { resumed->amend(records); };
  const auto sinks = std::make_shared<std::vector<std::unique_ptr<Sink>>>(make_sinks());
  const auto stage = std::make_shared<std::unique_ptr<AlertStage>>(alerts_.make(*config_, begin_replicas()));
  after_scalars(
      [this, layout = layout_of(*config_, commitment.revision), sinks, stage, amend = std::move(amend)] {
        writer_.begin_revision(layout, std::move(*sinks), std::move(*stage), amend);
      });
  if (!config_->scalars.empty()) {
    scalars_ = std::make_shared<TrainingScalars>(
        *config_, commitment.revision,
        TrainingScalars::Context{settings_.rank, settings_.world_size, names_, *stream_, writer_,
                                 resumed_samples()});
  }
  begin_flight();
  attach();
}

// Null: nothing to compare.
AlertStages::OnRecords Collection::begin_replicas() {
  const auto rule = find_divergence_rule(*config_);
  if (!rule || !includes_rank(*config_, settings_.rank)) return nullptr;
  if (settings_.replicas.size() < 2) {
    warn(kNoReplicas);
    return nullptr;
  }
  replicas_ = std::make_shared<ReplicaRowReader>(replica_group_of(settings_.replicas),
                                                 rule->threshold.value_or(kDivergenceThreshold), names_,
                                                 settings_.on_replicas);
  return [reader = replicas_](Step step, const RecordBatch& records) { reader->on_records(step, records); };
}

void Collection::begin_flight() {
  if (config_->keep_last == 0 || !includes_rank(*config_, settings_.rank)) return;
  if (config_->alert.rules.empty()) return warn(kNoRules);
  recording_ = true;
  if (config_->scalars.empty()) return;
  between_ = std::make_unique<TrainingScalars>(
      *config_, in_force_.revision,
      TrainingScalars::Context{settings_.rank, settings_.world_size, names_, *stream_, writer_,
                               resumed_samples(), TrainingScalars::Steps::between});
}

// Frees the kept steps' memory.
void Collection::forget_flight() {
  writer_.write_file([recorder = alerts_.flight()]() -> tl::expected<void, std::string> {
    recorder->begin(0, {});
    return {};
  });
}

std::vector<std::unique_ptr<Sink>> Collection::make_sinks() const {
  SinkContext context{[directory = settings_.directory] { return directory->create(); },
                      names_,
                      last_,
                      settings_.rank,
                      in_force_.plan->config_text,
                      settings_.directory->appends() ? Resume::yes : Resume::no,
                      scopes_.table()};
  std::vector<std::unique_ptr<Sink>> sinks;
  if (keeps_last_step_) {  // First: last_rows() does not wait for the disk.
    context.implied = !writes_format(*config_, Config::Format::api);
    sinks.push_back(make_sink(name_of(Config::Format::api), context));
  }
  for (const Config::Format format : config_->format) {
    if (format != Config::Format::api) sinks.push_back(make_sink(name_of(format), context));
  }
  return sinks;
}

// Only rows create the run directory. A switch to on is therefore noted after the first rows.
void Collection::note_plan_change(Step at) {
  unwritten_note_ = SwitchNote{"", settings_.rank, in_force_.revision, at, in_force_.plan->on, wall_now()};
  if (!in_force_.plan->on) write_note();
}

void Collection::write_note() {
  if (!unwritten_note_) return;
  const bool queued =
      writer_.write_file([directory = settings_.directory,
                          note = *unwritten_note_]() mutable -> tl::expected<void, std::string> {
        const auto path = directory->path();
        if (path.empty()) return {};  // No directory: no rows were ever written.
        note.epoch = directory->epoch();
        return append_switch(path / "switches.jsonl", note);
      });
  if (queued) unwritten_note_.reset();
}

// Returns true if another rank writes the rows of replicas: the first one that holds them and collects.
bool Collection::leaves_replicas() const {
  const std::vector<int>& ranks = settings_.replicas;
  if (config_->replicas == Config::Replicas::all || ranks.size() < 2 || settings_.moments_differ)
    return false;
  const auto first = std::find_if(ranks.begin(), ranks.end(),
                                  [this](int rank) { return includes_rank(*config_, Rank{rank}); });
  return first != ranks.end() && *first != settings_.rank.value;
}

HookSettings Collection::hook_settings() const {
  HookSettings settings = to_hook_settings(*config_, in_force_.revision);
  settings.grad_acc_steps = settings_.grad_acc_steps;
  settings.short_steps = settings_.short_steps;
  settings.gradient_scales = scales_;
  settings.passes = passes_;
  settings.leaves_replicas = leaves_replicas();
  settings.compares_replicas = replicas_ != nullptr;
  settings.flight = recording_;
  if (scalars_) settings.each_norm = scalars_->board().kinds(NormOf::each_parameter);
  if (scalars_) settings.whole_norm = scalars_->board().kinds(NormOf::all_parameters);
  if (between_)
    settings.whole_norm_between =
        between_->board().kinds(NormOf::all_parameters) & bit_of(Kind::grad_reduced);
  return settings;
}

void Collection::attach() {
  hooks_.reset();
  if (!includes_rank(*config_, settings_.rank)) return;
  const HookSettings settings = hook_settings();
  hooks_ = std::make_unique<HookSet>(settings, model_, *stream_, settings_.stack);
  if (replicas_) compare_replicas(settings);
  hooks_time_ = {};
  const std::vector<WatchedTensor>& parameters = hooks_->parameters();
  for (const WatchedTensor& one : parameters) scopes_.expect(one.target, model_.parameters[one.index]);
  // Without a model, tap() passes every value, under names that are not known yet.
  const bool by_tap_only = model_.parameters.empty() && target_names(model_).empty();
  ledger_.expect(expected_targets(settings, model_, parameters, *names_),
                 by_tap_only ? std::vector<UnmatchedTarget>() : unmatched_targets(hooks_->matches()));
  update_unmatched();
  for (const std::string& warning : unmatched_warnings_) log_once(warning);
  if (const std::string absent = never_unreduced(parameters); !absent.empty()) warn(absent);
  if (!collects_anything(*config_)) log_once(kNothingEnabled);  // the hub's status says it
  const bool sharded =
      std::any_of(model_.parameters.begin(), model_.parameters.end(),
                  [](const WatchedParameter& one) { return one.sharding || !one.replicated; });
  if (config_->replicas != Config::Replicas::all && settings_.world_size > 1 &&
      settings_.replicas.size() < 2 && !sharded && !model_.parameters.empty())
    warn(kReplicasUnknown);
}

void Collection::compare_replicas(const HookSettings& settings) {
  writer_.write_file(
      [reader = replicas_,
       targets = not_replicated(model_, settings.squash_name, *names_)]() -> tl::expected<void, std::string> {
        reader->leave_out(targets);
        return {};
      });
}

void Collection::warn(const std::string& sentence) {
  log_once(sentence);
  const std::lock_guard lock(mutex_);
  if (std::find(warnings_.begin(), warnings_.end(), sentence) == warnings_.end())
    warnings_.push_back(sentence);
}

void Collection::log_once(const std::string& warning) {
  if (logged_warnings_.insert(warning).second) log_warn(warning);
}

void Collection::update_unmatched() {
  const std::vector<UnmatchedTarget> unmatched = ledger_.unmatched();
  unmatched_ = unmatched.size();
  std::vector<std::string> warnings = describe_all(unmatched);
  const std::lock_guard lock(mutex_);
  unmatched_warnings_ = std::move(warnings);
}

void Collection::detach() {
  hooks_.reset();
  settle_between();
  stream_->set_scalars(nullptr);
  between_.reset();
  replicas_.reset();
  recording_ = false;
  const auto scalars = std::exchange(scalars_, nullptr);
  const int scalar_steps = std::exchange(scalar_steps_, 0);
  collecting_ = false;
  // The last step may still get a late value.
  if (scalar_steps > 0 && scalar_steps < kStepsUntilMissed)
    after_scalars([scalars] {
      for (const std::string& warning : scalars->warnings()) log_warn(warning);
    });
  const std::lock_guard lock(mutex_);
  warnings_.clear();
  unmatched_warnings_.clear();
  scalar_warnings_.clear();
  hook_error_.clear();
  missing_update_warned_ = false;
  looked_for_unseen_ = false;
}

// The readers of this step.
Readers Collection::readers() const noexcept {
  if (!collecting_) return recording_ ? kInBetween : 0;
  // The recorder has the rows of a plan that reads the gradients.
  return recording_ && !config_->wg_distribution ? kInCollected | kForFlight : kInCollected;
}

TrainingScalars* Collection::scalars() const noexcept {
  if (collecting_) return scalars_.get();
  return recording_ ? between_.get() : nullptr;
}

void Collection::begin_step(Step step, Collect collect, std::int64_t samples) noexcept {
  const bool was_armed = collecting_;
  collecting_ = collect == Collect::yes;
  step_ = step;
  updated_ = false;
  passes_->begin();
  previous_ = std::exchange(ended_, Measured::no);
  if (previous_ == Measured::no) begins_seen_ = true;  // unknown, so assumed
  begun_ = step <= settings_.start || model_.parameters.empty();
  nodes_ = at::sequence_number::peek();
  if (!collecting_ && !was_armed && !recording_) return;
  if (collecting_) measure_overhead(step);
  const OwnTime own_time(*this);
  queue_->begin_step();
  stream_->set_scalars(scalars());
  if (scalars()) scalars()->begin_step(step, samples);
  if (hooks_) hooks_->begin_step(step, readers());
  nodes_ = at::sequence_number::peek();  // attaching hooks has made some
}

void Collection::measure_overhead(Step step) {
  const auto of_hooks = hooks_time();
  const auto spent = std::exchange(own_time_, {}) + of_hooks - std::exchange(hooks_time_, of_hooks);
  meter_.begin_collected(step, std::chrono::steady_clock::now().time_since_epoch(), spent);
  const std::lock_guard lock(mutex_);
  overhead_ = meter_.measured();
}

void Collection::end_step(std::int64_t samples, bool counts) noexcept {
  const OwnTime own_time(*this);
  settle_scalars();
  begins_seen_ = forward_seen();
  ended_ = Measured::collected;
  if (hooks_) {
    hooks_->end_step();
    if (!updated_) warn_of_missing_update();
    note_failure(hooks_->failure());
  }
  end_scalars(samples);
  if (!counts) {
    queue_->drop_step(in_force_.revision, step_);
    ledger_.drop_step();
    if (awaiting_) awaiting_->drop();
    awaiting_.reset();
    return log_warn("rows of step " + std::to_string(step_.value) +
                    " dropped: this rank lost its lease during the step");
  }
  end_batch();
  write_note();
  scopes_.write(settings_.directory, writer_);
  ledger_.end_step(step_, wall_now());
  if (!std::exchange(looked_for_unseen_, true)) warn_of_unseen_modules();
  if (ledger_.counts().unmatched != static_cast<std::int64_t>(unmatched_)) update_unmatched();
}

void Collection::end_step_between(std::int64_t samples) noexcept {
  settle_scalars();
  if (!recording_) return;
  const OwnTime own_time(*this);
  begins_seen_ = forward_seen();
  ended_ = Measured::between;
  if (hooks_) hooks_->end_step();
  if (hooks_) note_failure(hooks_->failure());
  if (between_) between_->end_step(samples);
  if (between_) note_failure(between_->fuse().failure());
  end_batch();
}

// Passes the step's rows to the writer.
void Collection::end_batch() noexcept {
  const RecordQueue::Ended ended = queue_->end_step(in_force_.revision, step_);
  alerts_.flight()->count_lost(ended.flight_lost);
  if (ended.replicas_lost > 0 && !std::exchange(behind_logged_, true))
    log_warn("AnomalyRankDivergence: the writer is behind, so that steps are not compared");
  if (!collecting_) return;
  last_rows_ = ended.rows;
  last_ended_ = last_rows_ > 0 ? step_ : Step{-1};
}

void Collection::note_failure(const std::optional<HookFailure>& failure) {
  if (!failure) return;
  const std::lock_guard lock(mutex_);
  hook_error_ = failure->target + ": " + failure->cause;
}

void Collection::end_scalars(std::int64_t samples) noexcept {
  if (!scalars_) return;
  scalars_->end_step(samples);
  if (scalars_->awaits()) awaiting_ = scalars_;
  note_failure(scalars_->fuse().failure());
  const bool missed = ++scalar_steps_ >= kStepsUntilMissed;
  std::vector<std::string> warnings = missed ? scalars_->warnings() : std::vector<std::string>();
  for (const std::string& warning : warnings) log_once(warning);
  const std::lock_guard lock(mutex_);
  scalar_warnings_ = std::move(warnings);
}

// Returns true if the value belongs to the previous step, even if that step has no use for it.
bool Collection::report_late(std::string_view name, double value) noexcept {
  if (!begins_seen_ || begun_ || forward_seen()) return false;
  bool taken = true;
  TrainingScalars* const scalars = awaiting_ ? awaiting_.get() : scalars_.get();
  if (previous_ == Measured::collected && scalars) taken = scalars->report_late(name, value);
  if (previous_ == Measured::between && between_) taken = between_->report_late(name, value);
  if (taken) nodes_ = at::sequence_number::peek();
  if (awaiting_ && !awaiting_->awaits()) settle_scalars();
  if (between_ && !between_->awaits()) settle_between();
  return taken;
}

bool Collection::forward_seen() const noexcept {
  return passes_->training() > 0 || at::sequence_number::peek() > nodes_ + kNodesForLog;
}

// Writes the rows that wait for late scalars, and posts the writes that must follow them.
void Collection::settle_scalars() noexcept {
  settle_between();
  if (!awaiting_) return;
  RecordBatch rows;
  stream_->hold(&rows);
  awaiting_->settle();
  stream_->hold(nullptr);
  awaiting_.reset();
  if (!rows.empty()) {
    const Record first = rows[0];
    const Revision revision{first.revision};
    last_rows_ = rows.size() + (last_ended_.value == first.step ? last_rows_ : 0);
    last_ended_ = Step{first.step};
    queue_->add_to_step(revision, last_ended_, rows);
  }
  for (const auto& post : std::exchange(posts_, {})) post();
}

// The same for a step that was not collected.
void Collection::settle_between() noexcept {
  if (!between_) return;
  RecordBatch rows;
  stream_->hold(&rows);
  between_->settle();
  stream_->hold(nullptr);
  if (!rows.empty()) queue_->add_to_step(Revision{rows[0].revision}, Step{rows[0].step}, rows);
}

void Collection::after_scalars(std::function<void()> post) {
  if (!awaiting_) return post();
  posts_.push_back(std::move(post));
}

std::vector<Metric> Collection::last_rows() const {
  if (!keeps_last_step_ || last_ended_ < Step{0}) return {};
  const bool may_wait_for_hub = settings_.directory->epoch().empty() && last_->content().step < Step{0};
  const auto deadline =
      std::chrono::steady_clock::now() + (may_wait_for_hub ? kWaitForFirstRows : kWaitForRows);
  LastStep::Content last = last_->content();
  const auto is_whole = [this](const LastStep::Content& content) {
    return last_ended_ < content.step ||
           (content.step == last_ended_ && content.records.size() >= last_rows_);
  };
  while (!is_whole(last) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kPollPause);
    last = last_->content();
  }
  std::vector<Metric> rows;
  for (const Record& record : last.records) {
    Metric row{name_of(record.kind),
               names_->vpp_stage(record.target),
               names_->name(record.target),
               record.step,
               {},
               {}};
    if (has_micro_step(record.kind, last.layout)) row.micro_step = record.micro_step;
    for (const auto& [title, value] : titled_values(record)) row.values.emplace_back(title, value);
    rows.push_back(std::move(row));
  }
  return rows;
}

void Collection::end_collection(Step end) noexcept {
  if (recording()) forget_flight();
  detach();
  after_scalars([this, revision = in_force_.revision, last = Step{end.value - 1}] {
    queue_->end_collection(revision, last);
  });
}

void Collection::warn_of_missing_update() noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(missing_update_warned_, true)) return;
  warnings_.emplace_back(
      "a collected step ended without an optimizer's update: it has no rows in grad_reduced, param_*, "
      "exp_avg* and mg_direction");
}

// Call it after a plan's first collected step. C++ modules have no hooks: the program reports forwards.
void Collection::warn_of_unseen_modules() {
  if (settings_.stack) return;                             // a Python program
  std::map<std::string, std::vector<std::string>> silent;  // names of modules, by the reason
  for (const TargetStatus& one : ledger_.list().targets) {
    const bool unseen = one.why.find("gradmon::observe") != std::string::npos;
    const bool is_module =
        one.kind == name_of(Kind::actv_grad) || (unseen && one.kind == name_of(Kind::actv));
    // A reason that names a row is of that row alone.
    if (!is_module || one.last_step >= 0 || one.why.empty() || one.why.find(one.name) == 0) continue;
    auto& names = silent[unseen ? kObserve : one.why];
    if (std::find(names.begin(), names.end(), one.name) == names.end()) names.push_back(one.name);
  }
  for (const auto& [why, modules] : silent) {
    std::string names = modules.front();
    for (std::size_t i = 1; i < std::min<std::size_t>(3, modules.size()); ++i) names += ", " + modules[i];
    if (modules.size() > 3) names += " and " + std::to_string(modules.size() - 3) + " more";
    warn((why == kObserve ? "no activations of " : "no gradients of the activations of ") + names + ": " +
         why);
  }
}

void Collection::gathered(const void* unit) noexcept {
  if (hooks_) hooks_->gathered(unit);
}

void Collection::before_update(const std::vector<at::Tensor>& parameters,
                               const OptimizerState* state) noexcept {
  const OwnTime own_time(*this);
  updated_ = begun_ = true;
  passes_->begin();
  if (hooks_) hooks_->before_update(parameters, state);
}

void Collection::after_update(const std::vector<at::Tensor>& parameters,
                              const OptimizerState* state) noexcept {
  const OwnTime own_time(*this);
  if (hooks_) hooks_->after_update(parameters, state);
}

void Collection::tap(const TappedValue& value, std::chrono::steady_clock::time_point begun) noexcept {
  own_time_ += std::chrono::steady_clock::now() - begun;
  const OwnTime own_time(*this);
  updated_ = begun_ = true;
  if (hooks_) hooks_->tap(value);
}

void Collection::deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept {
  begun_ = true;
  if (hooks_) hooks_->deliver_gradient(parameter, gradient);
}

void Collection::report_scalar(std::string_view name, double value) noexcept {
  const OwnTime own_time(*this);
  if (report_late(name, value)) return;
  if (scalars()) scalars()->report(name, value);
}

void Collection::report_experts(std::string_view layer, const std::vector<std::int64_t>& tokens) noexcept {
  const OwnTime own_time(*this);
  if (scalars()) scalars()->count_experts(layer, tokens);
}

void Collection::stop(std::optional<std::chrono::milliseconds> at_most) noexcept {
  settle_scalars();
  detach();
  model_ = {};
  if (notes_) notes_->renew();
  WriterThread::StopTimeout timeout;
  if (at_most) timeout.stalled = timeout.in_all = *at_most;
  timeout.slow = [] { log_info("training has ended; rows are still being written"); };
  if (writer_.stop(timeout)) return;
  try {
    const std::string reason = writer_.status().last_error;
    log_warn("the writer did not end in time; not written: " + to_string(writer_.abandoned_output()) +
             (reason.empty() ? "" : "; " + reason));
  } catch (const std::exception& error) {
    log_warn(error.what());
  }
}

CollectingReport Collection::report() const {
  const WriterStatus writer = writer_.status();
  CollectingReport report;
  report.records = writer.written;
  report.dropped = queue_->dropped() + writer.lost;
  report.error = writer.last_error;
  const std::string slow_on_gpu = cuda_totals_problem();
  report.targets = ledger_.counts();
  const std::lock_guard lock(mutex_);
  if (!hook_error_.empty()) report.error = hook_error_;
  report.warnings = unmatched_warnings_;
  report.warnings.insert(report.warnings.end(), warnings_.begin(), warnings_.end());
  if (!slow_on_gpu.empty())
    report.warnings.push_back("tensors on the GPU are read by torch's ops, which takes longer: " +
                              slow_on_gpu);
  report.overhead = overhead_;
  report.warnings.insert(report.warnings.end(), scalar_warnings_.begin(), scalar_warnings_.end());
  const FlightRecorder::Counts flight = alerts_.flight()->counts();
  report.flight_written = flight.written;
  report.flight_lost = flight.lost;
  const std::vector<std::string> of_flight = flight_warnings(flight);
  report.warnings.insert(report.warnings.end(), of_flight.begin(), of_flight.end());
  if (settings_.samples && !settings_.samples->problem().empty())
    report.warnings.push_back(settings_.samples->problem());
  return report;
}

}  // namespace gradmon
