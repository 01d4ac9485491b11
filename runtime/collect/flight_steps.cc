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
  const HookSettings settings = flight_settings(plan);
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
