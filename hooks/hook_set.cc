// SPDX-License-Identifier: Apache-2.0
#include "hooks/hook_set.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "hooks/activations/activation_probe.h"
#include "hooks/collectives/collective_probe.h"
#include "hooks/observe/forward_tap.h"
#include "hooks/gradients/gradient_hooks.h"
#include "hooks/gradients/gradient_probe.h"
#include "hooks/activations/l2_probe.h"
#include "hooks/activations/module_structure.h"
#include "hooks/gradients/moment_probe.h"
#include "hooks/rows/row_writer.h"
#include "hooks/gradients/sign_agreement_probe.h"
#include "hooks/names/squash_name.h"
#include "hooks/names/target_names.h"
#include "hooks/gradients/weight_probe.h"

namespace gradmon {
namespace {

std::vector<Watched> select(const WatchedModel& model, const std::vector<std::size_t>& matched, Squash squash,
                            RecordStream& stream) {
  const std::vector<WatchedParameter>& parameters = model.parameters;
  const auto names = record_names(parameter_names(model), squash);
  std::unordered_set<const void*> seen;
  std::vector<Watched> watched;
  for (const std::size_t i : matched) {
    if (i >= parameters.size()) break;  // modules
    const at::Tensor& tensor = parameters[i].tensor;
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    if (parameters[i].author == Author::another) continue;
    watched.push_back({tensor, names[i], stream.target_id(parameters[i].vpp_stage, names[i]), i,
                       parameters[i].author == Author::self_before_reduction, parameters[i].main_gradient});
  }
  return watched;
}

// Finds an optimizer's parameters among the watched ones. Leaves out the parameters of which this rank
// writes only the unreduced gradient.
class ParameterPlaces {
 public:
  explicit ParameterPlaces(const std::vector<Watched>& watched) {
    for (std::size_t i = 0; i < watched.size(); ++i) {
      if (watched[i].before_reduction_only) continue;
      all_.push_back(i);
      places_.emplace(watched[i].tensor.unsafeGetTensorImpl(), i);
    }
  }

  std::vector<std::size_t> of(const std::vector<at::Tensor>& optimizer_parameters) const {
    if (optimizer_parameters.empty()) return all_;
    std::vector<std::size_t> found;
    for (const at::Tensor& parameter : optimizer_parameters) {
      const auto place = places_.find(parameter.unsafeGetTensorImpl());
      if (place != places_.end()) found.push_back(place->second);
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

 private:
  std::vector<std::size_t> all_;  // ascending
  std::unordered_map<const void*, std::size_t> places_;
};

}  // namespace

class HookSet::Attached {
 public:
  Attached(const HookSettings& settings, WatchedModel model, std::vector<Watched> watched,
           RecordStream& stream, StackSource stack, HookFuse& fuse, std::vector<UnmatchedPattern>& unmatched)
      : model_(std::move(model)),
        watched_(std::move(watched)),
        places_(watched_),
        rows_(stream, settings.revision, settings.ops) {
    if (settings.gradients || settings.moments || settings.momentum_agreement)
      add_gradient_probes(settings, fuse);
    if (settings.weights) add<WeightProbe>(watched_, settings.eps, fuse);
    if (settings.collectives.enabled)
      add<CollectiveProbe>(settings.collectives, settings.eps, model_.modules, stack, stream, fuse);
    if (settings.l2) {
      const Squash squash = settings.squash_name ? Squash::yes : Squash::no;
      add<L2Probe>(*settings.l2, model_, squash, stream, unmatched);
    }
    if (settings.activations.forward || settings.activations.backward)
      add<ActivationProbe>(settings, model_, stream, fuse);
    if (settings.module_structure || settings.call_stacks)
      structure_ = &add<ModuleStructure>(settings, model_, stream, fuse, std::move(stack));
    listen(settings.grad_acc_steps, fuse);
  }

  void begin_step(Step step) {
    rows_.begin_step(step);
    for (const auto& probe : probes_) probe->begin_step(step);
    if (tap_) tap_->begin_step();
    collecting_ = true;
  }

  void stop_collecting() noexcept {
    collecting_ = false;
    if (tap_) tap_->disarm();
    for (const auto& probe : probes_) probe->disarm();
  }

  void rest() noexcept {
    for (const auto& probe : probes_) probe->rest();
  }

  void detach() noexcept {
    tap_.reset();
    structure_ = nullptr;
    probes_.clear();
  }

  bool collecting() const noexcept { return collecting_; }

  void before_update(const std::vector<at::Tensor>& optimizer_parameters, const OptimizerState* state) {
    const Update update{places_.of(optimizer_parameters), state};
    for (const auto& probe : probes_) probe->before_update(update);
  }

  void after_update(const std::vector<at::Tensor>& optimizer_parameters, const OptimizerState* state) {
    const Update update{places_.of(optimizer_parameters), state};
    for (const auto& probe : probes_) probe->after_update(update);
  }

  void end_step() {
    for (const auto& probe : probes_) probe->write_rows(rows_);
    rows_.end_step();
  }

  bool structure_written() const noexcept { return structure_ && structure_->structure_written(); }

  HookCounts counts() const noexcept {
    const RowCounts& rows = rows_.counts();
    std::size_t attached = 0;
    for (const auto& probe : probes_) attached += probe->attached();
    return {watched_.size(), attached, rows.rows, rows.refused, rows.not_applicable};
  }

 private:
  template <typename P, typename... Arguments>
  P& add(Arguments&&... arguments) {
    auto probe = std::make_unique<P>(std::forward<Arguments>(arguments)...);
    P& added = *probe;
    probes_.push_back(std::move(probe));
    return added;
  }

  void add_gradient_probes(const HookSettings& settings, HookFuse& fuse) {
    GradientHookSettings reading;
    reading.eps = settings.eps;
    reading.scale = settings.gradient_scale;
    reading.micro_batches = settings.grad_acc_steps;
    if (settings.per_micro_batch) reading.reads = GradientReads::each_micro_batch;
    if (!settings.gradients) reading.reads = GradientReads::nothing;
    auto& hooks = add<GradientHooks>(watched_, reading, fuse);
    if (settings.gradients) add<GradientProbe>(watched_, hooks, settings.eps, fuse);
    if (settings.moments) add<MomentProbe>(watched_, hooks, settings.eps, fuse);
    if (settings.momentum_agreement) add<SignAgreementProbe>(watched_, hooks);
  }

  void listen(int grad_acc_steps, HookFuse& fuse) {
    std::vector<ForwardListener*> listeners;
    for (const auto& probe : probes_) {
      if (ForwardListener* listener = probe->forward_listener()) listeners.push_back(listener);
    }
    if (listeners.empty()) return;
    tap_ = std::make_unique<ForwardTap>(model_.modules, grad_acc_steps, std::move(listeners), fuse);
  }

  // Constant after construction.
  const WatchedModel model_;
  const std::vector<Watched> watched_;
  const ParameterPlaces places_;
  // Training thread only.
  RowWriter rows_;
  bool collecting_ = false;
  const ModuleStructure* structure_ = nullptr;  // one of the probes
  std::vector<std::unique_ptr<Probe>> probes_;  // Keep before tap_: detaches before the rest dies.
  std::unique_ptr<ForwardTap> tap_;             // Keep last: calls the probes. Null: no probe listens.
};

HookSet::HookSet(const HookSettings& settings, WatchedModel model, RecordStream& stream,
                 StackSource stack) noexcept {
  fuse_.guard("", [&] {
    matches_ = match_targets(settings.selection, target_names(model));
    auto watched = select(model, matches_.matched, settings.squash_name ? Squash::yes : Squash::no, stream);
    attached_ = std::make_unique<Attached>(settings, std::move(model), std::move(watched), stream,
                                           std::move(stack), fuse_, matches_.unmatched);
  });
}

HookSet::~HookSet() = default;

void HookSet::begin_step(Step step, Collect collect) noexcept {
  if (!attached_) return;
  if (attached_->collecting()) attached_->stop_collecting();
  if (fuse_.tripped()) return attached_->detach();
  if (collect == Collect::no) return attached_->rest();
  fuse_.guard("", [&] { attached_->begin_step(step); });
}

void HookSet::before_update(const std::vector<at::Tensor>& optimizer_parameters,
                            const OptimizerState* state) noexcept {
  if (!attached_ || !attached_->collecting() || fuse_.tripped()) return;
  fuse_.guard("", [&] { attached_->before_update(optimizer_parameters, state); });
}

void HookSet::after_update(const std::vector<at::Tensor>& optimizer_parameters,
                           const OptimizerState* state) noexcept {
  if (!attached_ || !attached_->collecting() || fuse_.tripped()) return;
  fuse_.guard("", [&] { attached_->after_update(optimizer_parameters, state); });
}

void HookSet::end_step() noexcept {
  if (!attached_ || !attached_->collecting()) return;
  attached_->stop_collecting();
  if (fuse_.tripped()) return;
  fuse_.guard("", [&] { attached_->end_step(); });
}

const MatchReport& HookSet::matches() const noexcept { return matches_; }

bool HookSet::structure_written() const noexcept { return attached_ && attached_->structure_written(); }

HookCounts HookSet::counts() const noexcept { return attached_ ? attached_->counts() : HookCounts{}; }

std::optional<HookFailure> HookSet::failure() const { return fuse_.failure(); }

}  // namespace gradmon
