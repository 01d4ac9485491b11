// SPDX-License-Identifier: Apache-2.0
#include "runtime/scalars/training_scalars.h"

#include <chrono>
#include <utility>

#include "control/log.h"
#include "runtime/scalars/scalar_line.h"

namespace gradmon {
namespace {

constexpr const char* kWhat = "scalars";

ScalarBoard::Settings board_settings(const Config& config, int world_size) {
  return {config.scalars, config.throughput_baseline, world_size};
}

ScalarBoard::Names board_names(const std::shared_ptr<NameTable>& names) {
  return {[names](const std::string& name) { return names->intern(name); },
          [names](std::uint32_t parameter) {
            return with_stage(names->vpp_stage(parameter), names->name(parameter));
          }};
}

}  // namespace

TrainingScalars::TrainingScalars(const Config& config, Revision revision, Context context)
    : context_(std::move(context)),
      board_(board_settings(config, context_.world_size), board_names(context_.names)),
      rows_(context_.stream, revision, 0) {}

void TrainingScalars::attach(const HookSettings& plan, const WatchedModel& model) {
  norms_.reset();
  const KindSet allowed = context_.steps == Steps::collected ? kAllKinds : bit_of(Kind::grad_reduced);
  norms_ = std::make_unique<NormHooks>(plan, model, board_, *context_.names, allowed);
}

void TrainingScalars::begin_step(Step step, HookSet::Collect collect, std::int64_t samples) noexcept {
  step_ = step;
  if (norms_) norms_->begin_step(step, collect);
  if (collect == HookSet::Collect::no || fuse_.tripped()) return;
  fuse_.guard(kWhat, [&] { board_.begin_step(std::chrono::steady_clock::now(), samples); });
}

void TrainingScalars::begin_hooks(Step step) noexcept {
  if (norms_) norms_->begin_step(step, HookSet::Collect::yes);
}

void TrainingScalars::gathered(const void* unit) noexcept {
  if (norms_) norms_->gathered(unit);
}

void TrainingScalars::before_update(const std::vector<at::Tensor>& parameters,
                                    const OptimizerState* state) noexcept {
  if (norms_) norms_->before_update(parameters, state);
}

void TrainingScalars::after_update(const std::vector<at::Tensor>& parameters,
                                   const OptimizerState* state) noexcept {
  if (norms_) norms_->after_update(parameters, state);
}

void TrainingScalars::deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept {
  if (norms_) norms_->deliver_gradient(parameter, gradient);
}

void TrainingScalars::report(std::string_view name, double value) noexcept {
  fuse_.guard(kWhat, [&] { board_.report(name, value); });
}

void TrainingScalars::count_experts(std::string_view layer,
                                    const std::vector<std::int64_t>& tokens) noexcept {
  fuse_.guard(kWhat, [&] { board_.count_experts(layer, tokens); });
}

void TrainingScalars::on_record(const Record& record) noexcept {
  if (record.kind == Kind::scalar || !norms_) return;
  fuse_.guard(kWhat, [&] { norms_->on_record(record); });
}

void TrainingScalars::on_missing_row(Kind kind) noexcept {
  if (norms_) norms_->on_missing_row(kind);
}

void TrainingScalars::end_step(std::int64_t samples) noexcept {
  const auto now = std::chrono::steady_clock::now();
  if (norms_) norms_->end_step();
  if (fuse_.tripped()) return;
  fuse_.guard(kWhat, [&] {
    board_.end_step(now, samples);
    ended_ = {step_, samples};
  });
  if (!board_.awaits()) settle();
}

bool TrainingScalars::report_late(std::string_view name, double value) noexcept {
  bool taken = true;
  fuse_.guard(kWhat, [&] { taken = board_.report_late(name, value); });
  return taken;
}

void TrainingScalars::settle() noexcept {
  board_.close();
  if (!ended_ || fuse_.tripped()) return ended_.reset();
  fuse_.guard(kWhat, [&] {
    write_rows(*ended_);
    if (context_.steps == Steps::collected) write_log(*ended_);
    ended_one_ = true;
  });
  ended_.reset();
}

void TrainingScalars::drop() noexcept {
  board_.close();
  ended_.reset();
}

bool TrainingScalars::takes_norms() const noexcept { return norms_ && norms_->sees_plan(); }

void TrainingScalars::write_rows(const Ended& ended) {
  const std::int64_t samples = ended.samples;
  rows_.begin_step(ended.step);
  std::uint64_t sequence = 0;
  for (const ScalarRow& row : board_.rows()) {
    if (!board_.requested()[row.requested].records) continue;
    const RowKey key{Kind::scalar, row.name, sequence++};
    if (samples > 0) {
      rows_.write(key, {{Column::samples, static_cast<double>(samples)}, {Column::value, row.value}});
    } else {
      rows_.write(key, {{Column::value, row.value}});
    }
  }
}

void TrainingScalars::write_log(const Ended& ended) {
  std::vector<ScalarRow> logged;
  for (const ScalarRow& row : board_.rows()) {
    if (board_.requested()[row.requested].log) logged.push_back(row);
  }
  if (logged.empty()) return;
  // The writer thread formats and writes the line.
  context_.writer.write_file([logged = std::move(logged), names = context_.names, rank = context_.rank,
                              world_size = context_.world_size, resumed = context_.samples, step = ended.step,
                              samples = ended.samples]() mutable {
    if (resumed && samples > 0) samples = resumed->at(step, samples).value_or(0);
    std::vector<NamedScalar> named;
    named.reserve(logged.size());
    for (const ScalarRow& row : logged) named.push_back({names->name(row.name), row.value});
    log_info(scalar_line(rank, world_size, step, samples, named));
    return tl::expected<void, std::string>{};
  });
}

std::optional<HookFailure> TrainingScalars::failure() const {
  if (auto failure = fuse_.failure()) return failure;
  return norms_ ? norms_->failure() : std::nullopt;
}

std::vector<std::string> TrainingScalars::warnings() const {
  std::vector<std::string> warnings;
  if (!ended_one_) return warnings;
  for (const std::string& name : board_.without_value()) {
    warnings.push_back("scalar \"" + name + "\" was never reported and cannot be computed here");
  }
  return warnings;
}

}  // namespace gradmon
