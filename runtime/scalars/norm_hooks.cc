// SPDX-License-Identifier: Apache-2.0
#include "runtime/scalars/norm_hooks.h"

#include <algorithm>
#include <utility>

namespace gradmon {
namespace {

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

class NormHooks::Stream : public RecordStream {
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

NormHooks::NormHooks(const HookSettings& plan, const WatchedModel& model, ScalarBoard& board,
                     NameTable& names, KindSet allowed)
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

NormHooks::~NormHooks() = default;

void NormHooks::begin_step(Step step, HookSet::Collect collect) noexcept {
  for (const Set& set : sets_) set.hooks->begin_step(step, collect);
}

void NormHooks::gathered(const void* unit) noexcept {
  for (const Set& set : sets_) set.hooks->gathered(unit);
}

void NormHooks::before_update(const std::vector<at::Tensor>& parameters,
                              const OptimizerState* state) noexcept {
  for (const Set& set : sets_) set.hooks->before_update(parameters, state);
}

void NormHooks::after_update(const std::vector<at::Tensor>& parameters,
                             const OptimizerState* state) noexcept {
  for (const Set& set : sets_) set.hooks->after_update(parameters, state);
}

void NormHooks::deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept {
  for (const Set& set : sets_) set.hooks->deliver_gradient(parameter, gradient);
}

void NormHooks::end_step() noexcept {
  for (const Set& set : sets_) set.hooks->end_step();
}

void NormHooks::on_record(const Record& record) {
  for (const NormOf of : seen_in_plan_) board_.take_norm(of, record.kind, record.target, norm_in(record));
}

void NormHooks::on_missing_row(Kind kind) noexcept {
  for (const NormOf of : seen_in_plan_) board_.miss_norm(of, kind);
}

std::optional<HookFailure> NormHooks::failure() const {
  for (const Set& set : sets_) {
    if (auto failure = set.hooks->failure()) return failure;
  }
  return std::nullopt;
}

}  // namespace gradmon
