// SPDX-License-Identifier: Apache-2.0
#include "runtime/scalars/training_scalars.h"

#include <algorithm>
#include <chrono>
#include <exception>
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

constexpr KindSet kMoments = bit_of(Kind::exp_avg) | bit_of(Kind::exp_avg_sq);
constexpr KindSet kWeights = bit_of(Kind::param_updated);

double norm_in(const Record& record) { return record.values[static_cast<std::size_t>(Op::norm)]; }

KindSet kinds_of(const HookSettings& plan) {
  KindSet kinds = 0;
  if (plan.gradients || plan.reduced_gradients) kinds |= bit_of(Kind::grad_reduced);
  // A micro batch's gradient is not the step's.
  if (plan.gradients && !plan.per_micro_batch) kinds |= bit_of(Kind::grad_unreduced);
  if (plan.moments) kinds |= kMoments;
  if (plan.weights) kinds |= kWeights;
  return kinds;
}

bool writes_all(const HookSettings& plan, const WatchedModel& model) {
  return plan.selection.targets.empty() && plan.selection.target_regex.empty() &&
         std::all_of(model.parameters.begin(), model.parameters.end(), [](const WatchedParameter& parameter) {
           return parameter.author == RowAuthor::this_rank;
         });
}

HookSettings settings_for(KindSet kinds, const HookSettings& plan) {
  HookSettings settings;
  settings.revision = plan.revision;
  settings.gradients = (kinds & bit_of(Kind::grad_unreduced)) != 0;
  settings.reduced_gradients = (kinds & bit_of(Kind::grad_reduced)) != 0;
  settings.moments = (kinds & kMoments) != 0;
  settings.weights = (kinds & kWeights) != 0;
  settings.squash_name = plan.squash_name;
  settings.grad_acc_steps = plan.grad_acc_steps;
  settings.short_steps = plan.short_steps;
  settings.gradient_scales = plan.gradient_scales;
  return settings;
}

}  // namespace

// Passes to a ScalarBoard the norms that its scalars need. If the plan collects the same tensors, takes the
// norms from the plan's records (on_record()). If not, attaches its own hooks: to all parameters, regardless
// of `targets`, for a norm over all parameters; to the selected ones for norms of single parameters. Training
// thread; only the constructor throws.
class TrainingScalars::NormHooks {
 public:
  // `plan`: settings of the plan's own hooks. `board` and `names` must outlive this object. Norms of kinds
  // that are not `allowed` are not taken.
  NormHooks(const HookSettings& plan, const WatchedModel& model, ScalarBoard& board, NameTable& names,
            KindSet allowed)
      : board_(board) {
    const bool all_written = writes_all(plan, model);
    for (const NormOf of : {NormOf::each_parameter, NormOf::all_parameters}) {
      const KindSet kinds = board.kinds(of) & allowed;
      if (kinds == 0) continue;
      const bool seen = (kinds & ~kinds_of(plan)) == 0 && (plan.ops & bit_of(Op::norm)) != 0;
      if (seen && (of == NormOf::each_parameter || all_written)) {
        seen_in_plan_.push_back(of);
        continue;
      }
      HookSettings settings = settings_for(kinds, plan);
      WatchedModel watched = model;
      if (of == NormOf::each_parameter) {
        settings.selection = plan.selection;
      } else {
        for (WatchedParameter& parameter : watched.parameters) parameter.author = RowAuthor::this_rank;
      }
      auto stream = std::make_unique<Stream>(of, board, names);
      auto hooks = std::make_unique<HookSet>(settings, std::move(watched), *stream);
      sets_.push_back({std::move(stream), std::move(hooks)});
    }
  }

  // Like the members of HookSet.
  void begin_step(Step step, HookSet::Collect collect) noexcept {
    for (const Set& set : sets_) set.hooks->begin_step(step, collect);
  }
  void gathered(const void* unit) noexcept {
    for (const Set& set : sets_) set.hooks->gathered(unit);
  }
  void before_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept {
    for (const Set& set : sets_) set.hooks->before_update(parameters, state);
  }
  void after_update(const std::vector<at::Tensor>& parameters, const OptimizerState* state) noexcept {
    for (const Set& set : sets_) set.hooks->after_update(parameters, state);
  }
  void deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept {
    for (const Set& set : sets_) set.hooks->deliver_gradient(parameter, gradient);
  }
  void end_step() noexcept {
    for (const Set& set : sets_) set.hooks->end_step();
  }

  // True if on_record() takes any norm.
  bool sees_plan() const noexcept { return !seen_in_plan_.empty(); }
  // Takes the norm from a record that the plan's hooks have made.
  void on_record(const Record& record) {
    for (const NormOf of : seen_in_plan_) board_.take_norm(of, record.kind, record.target, norm_in(record));
  }
  // The plan's hooks could not read a tensor of this kind.
  void on_missing_row(Kind kind) noexcept {
    for (const NormOf of : seen_in_plan_) board_.miss_norm(of, kind);
  }

  std::optional<HookFailure> failure() const {
    for (const Set& set : sets_) {
      if (auto failure = set.hooks->failure()) return failure;
    }
    return std::nullopt;
  }

 private:
  class Stream : public RecordStream {
   public:
    Stream(NormOf of, ScalarBoard& board, NameTable& names) : of_(of), board_(board), names_(names) {}
    std::uint32_t target_id(int vpp_stage, std::string_view name) override {
      return names_.intern(name, vpp_stage);
    }
    std::uint32_t shape_id(std::string_view) override { return 0; }
    bool push(const Record& record) noexcept override {
      try {
        board_.take_norm(of_, record.kind, record.target, norm_in(record));
        return true;
      } catch (const std::exception&) {
        return false;
      }
    }
    bool push(const Histogram&) noexcept override { return true; }
    void note_missing_row(Kind kind) noexcept override { board_.miss_norm(of_, kind); }
    void publish(Document, std::string) noexcept override {}

   private:
    const NormOf of_;
    ScalarBoard& board_;
    NameTable& names_;
  };
  struct Set {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<HookSet> hooks;
  };

  // Constant after construction.
  ScalarBoard& board_;
  std::vector<NormOf> seen_in_plan_;
  std::vector<Set> sets_;  // at most one for each NormOf
};

TrainingScalars::TrainingScalars(const Config& config, Revision revision, Context context)
    : context_(std::move(context)),
      board_(board_settings(config, context_.world_size), board_names(context_.names)),
      rows_(context_.stream, revision, 0) {}

TrainingScalars::~TrainingScalars() = default;

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

void TrainingScalars::detach() noexcept { norms_.reset(); }

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
