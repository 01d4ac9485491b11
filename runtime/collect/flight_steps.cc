// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/flight_steps.h"

#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "control/log.h"

namespace gradmon {
namespace {

HookSettings flight_settings(const HookSettings& plan) {
  HookSettings settings;
  settings.revision = plan.revision;
  settings.reduced_gradients = true;
  settings.selection = plan.selection;
  settings.squash_name = plan.squash_name;
  settings.ops = bit_of(Op::norm) | bit_of(Op::nans);
  settings.eps = plan.eps;
  settings.gradient_scales = plan.gradient_scales;
  return settings;
}

}  // namespace

// Collects the rows of a step.
class FlightSteps::Stream : public RecordStream {
 public:
  explicit Stream(std::shared_ptr<NameTable> names) : names_(std::move(names)) {}
  std::uint32_t target_id(int vpp_stage, std::string_view name) override {
    return names_->intern(name, vpp_stage);
  }
  std::uint32_t shape_id(std::string_view shape) override { return names_->intern_shape(shape); }
  bool push(const Record& record) noexcept override {
    try {
      rows.push_back(record);
    } catch (const std::exception&) {
      return false;
    }
    if (observer != nullptr) observer->on_record(record);
    return true;
  }
  bool push(const Histogram&) noexcept override { return true; }  // There are none.
  void note_missing_row(Kind kind) noexcept override {
    if (observer != nullptr) observer->on_missing_row(kind);
  }
  void publish(Document, std::string) noexcept override {}

  std::vector<Record> rows;
  TrainingScalars* observer = nullptr;  // sees every record; null: none

 private:
  const std::shared_ptr<NameTable> names_;
};

// The rows of a step on their way to the alert rules. Rows that do not get there are counted as lost.
struct FlightSteps::Waiting {
  Waiting(const Context& context, std::shared_ptr<std::atomic<std::int64_t>> all, Step of,
          std::vector<Record> rows_of_step)
      : rows_waiting(std::move(all)),
        recorder(context.recorder),
        stage(context.stage),
        step(of),
        rows(std::move(rows_of_step)),
        count(static_cast<std::int64_t>(rows.size())) {
    *rows_waiting += count;
  }
  ~Waiting() {
    *rows_waiting -= count;
    if (!looked_at) recorder->count_lost(static_cast<std::uint64_t>(count));
  }

  // The rules see the rows once; what they want written is tried until it succeeds.
  tl::expected<void, std::string> write() {
    if (!looked_at) {
      looked_at = true;
      file = stage->on_step(step, rows, std::chrono::steady_clock::now());
      rows = {};
    }
    return file ? file->write() : tl::expected<void, std::string>{};
  }

  const std::shared_ptr<std::atomic<std::int64_t>> rows_waiting;
  const std::shared_ptr<FlightRecorder> recorder;
  const std::shared_ptr<AlertStage> stage;
  const Step step;
  std::vector<Record> rows;
  const std::int64_t count;
  bool looked_at = false;
  std::optional<FileToWrite> file;
};

FlightSteps::FlightSteps(const Config& config, const Layout& layout, Context context)
    : context_(std::move(context)),
      rows_waiting_(std::make_shared<std::atomic<std::int64_t>>(0)),
      stream_(std::make_unique<Stream>(context_.names)) {
  context_.writer.write_file([stage = context_.stage, layout]() -> tl::expected<void, std::string> {
    stage->begin_revision(layout);
    return {};
  });
  if (config.scalars.empty()) return;
  scalars_ = std::make_unique<TrainingScalars>(
      config, layout.revision,
      TrainingScalars::Context{context_.rank, context_.world_size, context_.names, *stream_, context_.writer,
                               TrainingScalars::Steps::between});
}

FlightSteps::~FlightSteps() = default;

void FlightSteps::attach(const HookSettings& plan, const WatchedModel& model) {
  const HookSettings settings = flight_settings(plan);
  plan_reads_gradients_ = plan.gradients;
  hooks_.reset();
  hooks_ = std::make_unique<HookSet>(settings, model, *stream_);
  if (scalars_) scalars_->attach(settings, model);
}

void FlightSteps::begin_step(Step step, HookSet::Collect collect, std::int64_t samples) noexcept {
  step_ = step;
  between_ = collect == HookSet::Collect::no;
  stream_->rows.clear();
  stream_->observer = between_ ? scalars_.get() : nullptr;
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

void FlightSteps::before_update(const std::vector<at::Tensor>& parameters,
                                const OptimizerState* state) noexcept {
  if (hooks_) hooks_->before_update(parameters, state);
  if (scalars_ && between_) scalars_->before_update(parameters, state);
}

void FlightSteps::deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept {
  if (hooks_) hooks_->deliver_gradient(parameter, gradient);
  if (scalars_ && between_) scalars_->deliver_gradient(parameter, gradient);
}

void FlightSteps::report(std::string_view name, double value) noexcept {
  if (scalars_ && between_) scalars_->report(name, value);
}

void FlightSteps::count_experts(std::string_view layer, const std::vector<std::int64_t>& tokens) noexcept {
  if (scalars_ && between_) scalars_->count_experts(layer, tokens);
}

void FlightSteps::end_step(std::int64_t samples) noexcept {
  if (hooks_) hooks_->end_step();
  if (scalars_ && between_) scalars_->end_step(samples);
  if (!stream_->rows.empty()) send();
}

void FlightSteps::drop_step() noexcept {
  if (hooks_) hooks_->end_step();
  stream_->rows.clear();
}

void FlightSteps::send() noexcept {
  const auto count = static_cast<std::int64_t>(stream_->rows.size());
  const std::int64_t before = *rows_waiting_;
  if (before > 0 && before + count > kMostRowsWaiting)
    return context_.recorder->count_lost(static_cast<std::uint64_t>(count));
  try {
    const auto waiting = std::make_shared<Waiting>(context_, rows_waiting_, step_, std::move(stream_->rows));
    stream_->rows = {};
    stream_->rows.reserve(static_cast<std::size_t>(count));
    context_.writer.write_file([waiting] { return waiting->write(); });
  } catch (const std::exception& error) {
    log_error(std::string("a step is missing in the flight recorder: ") + error.what());
  }
}

std::chrono::nanoseconds FlightSteps::hook_time() const noexcept {
  return hooks_ ? hooks_->hook_time() : std::chrono::nanoseconds{};
}

std::optional<HookFailure> FlightSteps::failure() const {
  auto failure = hooks_ ? hooks_->failure() : std::nullopt;
  return !failure && scalars_ ? scalars_->failure() : failure;
}

std::vector<std::string> warnings_of(const FlightRecorder::Counts& counts) {
  std::vector<std::string> warnings;
  if (counts.lost > 0)
    warnings.push_back("flight recorder: " + std::to_string(counts.lost) + " rows lost, " +
                       std::to_string(counts.written) + " written");
  if (counts.full)
    warnings.push_back("flight recorder: full, " + std::to_string(counts.written) + " rows written");
  return warnings;
}

}  // namespace gradmon
