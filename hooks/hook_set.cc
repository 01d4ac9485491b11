// SPDX-License-Identifier: Apache-2.0
#include "hooks/hook_set.h"

#include <algorithm>
#include <array>
#include <utility>

#include "hooks/device/cuda_totals.h"
#include "hooks/observe/forward_tracker.h"
#include "hooks/probes/activation_probe.h"
#include "hooks/probes/collective_probe.h"
#include "hooks/probes/gradient_hooks.h"
#include "hooks/probes/l2_probe.h"
#include "hooks/probes/module_structure.h"
#include "hooks/probes/parameter_probes.h"
#include "hooks/probes/tap_probe.h"
#include "hooks/rows/row_writer.h"
#include "hooks/rows/target_names.h"

namespace gradmon {
namespace {

constexpr KindSet kMoments = bit_of(Kind::exp_avg) | bit_of(Kind::exp_avg_sq);
constexpr KindSet kWeights = bit_of(Kind::param_origin) | bit_of(Kind::param_updated);
constexpr KindSet kHistograms = bit_of(Kind::update) | bit_of(Kind::ratio);
constexpr KindSet kCompared = bit_of(Kind::grad_reduced) | kWeights;

// The kinds of parameters' rows in the plan.
KindSet row_kinds(const HookSettings& settings) {
  KindSet kinds = 0;
  if (settings.gradients) kinds |= bit_of(Kind::grad_unreduced) | bit_of(Kind::grad_reduced);
  if (settings.moments) kinds |= kMoments;
  if (settings.weights) kinds |= kWeights;
  if (settings.momentum_agreement) kinds |= bit_of(Kind::other);
  if (settings.update_histograms) kinds |= kHistograms;
  return kinds;
}

// The readers of the parameter, by Kind. A norm over all parameters also has those that the plan does
// not select or that other ranks write.
std::array<Readers, kKinds> readers_for(const WatchedParameter& parameter, const HookSettings& settings,
                                        bool matched) {
  std::array<Readers, kKinds> readers{};
  const auto add = [&](KindSet kinds, Readers reader) {
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      if ((kinds >> kind & 1U) != 0) readers[kind] |= reader;
    }
  };
  add(settings.whole_norm, kForWholeNorm);
  add(settings.whole_norm_between, kForWholeNormBetween);
  if (!matched) return readers;
  const RowAuthor author = effective_author(parameter, settings.leaves_replicas);
  const KindSet written = author == RowAuthor::this_rank                  ? ~KindSet{0}
                          : author == RowAuthor::this_rank_unreduced_only ? bit_of(Kind::grad_unreduced)
                                                                          : 0;
  add(row_kinds(settings) & written, kForRows);
  add(settings.each_norm & written, kForEachNorm);
  if (settings.flight && parameter.author == RowAuthor::this_rank)
    add(bit_of(Kind::grad_reduced), kForFlight);
  const bool elsewhere = parameter.replicated && author == RowAuthor::this_rank_unreduced_only;
  if (settings.compares_replicas && elsewhere) add(row_kinds(settings) & kCompared, kForReplicas);
  return readers;
}

// The parameters that are read, in the model's order.
std::vector<WatchedTensor> select(const WatchedModel& model, const std::vector<std::size_t>& matched,
                                  const HookSettings& settings, RecordStream& stream) {
  std::vector<bool> selected(model.parameters.size(), false);
  for (const std::size_t i : matched) {
    if (i < selected.size()) selected[i] = true;
  }
  const auto rows = row_names(model, settings.squash_name);
  const std::vector<std::string>& names = rows->parameters;
  std::vector<WatchedTensor> watched;
  watched.reserve(model.parameters.size());
  for (const std::size_t i : distinct_parameters(model, selected)) {
    const WatchedParameter& parameter = model.parameters[i];
    const auto readers = readers_for(parameter, settings, selected[i]);
    if (std::all_of(readers.begin(), readers.end(), [](Readers one) { return one == 0; })) continue;
    watched.push_back({parameter.tensor, names[i], stream.target_id(parameter.vpp_stage, names[i]), i,
                       readers, parameter.main_gradient, parameter.sharding, parameter.hook_first,
                       parameter.gradient_source, parameter.vpp_stage});
  }
  return watched;
}

bool any_reads(const std::vector<WatchedTensor>& watched, KindSet kinds, Readers readers) {
  return std::any_of(watched.begin(), watched.end(), [&](const WatchedTensor& parameter) {
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      if ((kinds >> kind & 1U) != 0 && (parameter.readers[kind] & readers) != 0) return true;
    }
    return false;
  });
}

// Finds an optimizer's parameters among the watched ones.
class ParameterIndices {
 public:
  explicit ParameterIndices(const std::vector<WatchedTensor>& watched) : watched_(watched) {
    for (std::size_t i = 0; i < watched.size(); ++i) all_.push_back(i);
    find_tensors();
  }

  std::optional<std::size_t> of(const at::Tensor& parameter) const {
    const auto index = indices_.find(parameter.unsafeGetTensorImpl());
    return index == indices_.end() ? std::nullopt : std::optional(index->second);
  }

  // Without parameters: the optimizer holds all.
  Update update_of(const std::vector<at::Tensor>& optimizer_parameters, const OptimizerState* state) {
    return {held_by(optimizer_parameters), state};
  }

 private:
  const std::vector<std::size_t>& held_by(const std::vector<at::Tensor>& optimizer_parameters) {
    if (optimizer_parameters.empty()) return all_;
    const auto is_last = [](const at::Tensor& now, const void* last) {
      return now.unsafeGetTensorImpl() == last;
    };
    if (std::equal(optimizer_parameters.begin(), optimizer_parameters.end(), asked_.begin(), asked_.end(),
                   is_last))
      return found_;
    if (has_other_tensors()) find_tensors();
    asked_.clear();
    found_.clear();
    for (const at::Tensor& parameter : optimizer_parameters) {
      asked_.push_back(parameter.unsafeGetTensorImpl());
      const auto [begin, end] = indices_.equal_range(asked_.back());
      for (auto index = begin; index != end; ++index) found_.push_back(index->second);
    }
    std::sort(found_.begin(), found_.end());
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
    return found_;
  }

  void find_tensors() {
    tensors_.clear();
    indices_.clear();
    for (std::size_t i = 0; i < watched_.size(); ++i) {
      tensors_.push_back(watched_[i].tensor->unsafeGetTensorImpl());
      indices_.emplace(tensors_.back(), i);
    }
  }

  // True after torch.utils.swap_tensors() (HeldTensor).
  bool has_other_tensors() const {
    return !std::equal(
        watched_.begin(), watched_.end(), tensors_.begin(),
        [](const WatchedTensor& now, const void* then) { return now.tensor->unsafeGetTensorImpl() == then; });
  }

  const std::vector<WatchedTensor>& watched_;
  std::vector<std::size_t> all_;  // ascending
  // The watched parameters' tensors at the last look.
  std::vector<const void*> tensors_;
  std::unordered_multimap<const void*, std::size_t> indices_;  // FSDP1 keeps several in one tensor
  // The last question and answer: an optimizer holds the same parameters in every step.
  std::vector<const void*> asked_;
  std::vector<std::size_t> found_;
};

}  // namespace

class HookSet::Attached {
 public:
  Attached(const HookSettings& settings, const WatchedModel& model, std::vector<WatchedTensor> watched,
           RecordStream& stream, StackSource stack, HookFuse& fuse, std::vector<UnmatchedPattern>& unmatched)
      : modules_(model.modules),
        watched_(std::move(watched)),
        reads_moments_(reads(kMoments | bit_of(Kind::other) | kHistograms)),
        reads_after_update_(reads(kWeights)),
        parameter_indices_(watched_),
        rows_(stream, settings.revision, settings.ops) {
    for (const WatchedTensor& parameter : watched_) prepare_cuda_totals(*parameter.tensor);
    add_gradient_probes(settings, fuse);
    if (reads(kWeights))
      probes_.push_back(make_weight_probe(watched_, {settings.eps, settings.sample}, fuse));
    if (settings.collectives.enabled)
      add<CollectiveProbe>(settings.collectives, settings.eps, modules_, stack, stream, fuse);
    if (settings.l2) add<L2Probe>(settings, model, stream, unmatched);
    if (settings.activations.forward || settings.activations.backward)
      add<ActivationProbe>(settings, model, stream, fuse);
    if (settings.module_structure || settings.call_stacks)
      add<ModuleStructure>(settings, model, stream, fuse, std::move(stack));
    taps_ = &add<TapProbe>(settings, stream, fuse);
    listen(settings, fuse);
  }

  ~Attached() { finish_preparing_cuda_totals(); }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

  void begin_step(Step step, Readers active) {
    rows_.begin_step(step, active);
    reading_ = true;
    for (const auto& probe : probes_)
      is_active(*probe) ? probe->begin_step(step, active) : probe->release_hooks();
    awaits_values_ = false;
    if (tracker_ && (active & kForRows) != 0) tracker_->begin_step();
  }

  void stop_reading() noexcept {
    if (tracker_) tracker_->disarm();
    for (const auto& probe : probes_) probe->disarm();
    reading_ = false;
  }

  void release_hooks() noexcept {
    for (const auto& probe : probes_) probe->release_hooks();
  }

  void gathered(const void* unit) {
    for (const auto& probe : probes_) probe->gathered(unit);
  }

  void detach() noexcept {
    tracker_.reset();
    taps_ = nullptr;
    gradient_hooks_ = nullptr;
    probes_.clear();
  }

  Readers active() const noexcept { return reading_ ? rows_.active() : Readers{0}; }
  const std::vector<WatchedTensor>& parameters() const noexcept { return watched_; }
  bool reads_moments() const noexcept { return reads_moments_; }
  bool reads_after_update() const noexcept { return reads_after_update_; }

  void tap(const TappedValue& value) { taps_->tap(value); }

  void before_update(const std::vector<at::Tensor>& optimizer_parameters, const OptimizerState* state) {
    const UpdateReads reads = state ? state->reads() : UpdateReads::everything;
    const bool left_out = reads == UpdateReads::everything_left_out;
    if (left_out && gradient_hooks_ != nullptr && !gradient_hooks_->any_arrived()) return;  // nothing has run
    awaits_values_ =
        reads == UpdateReads::gradients_and_moments || (awaits_values_ && reads != UpdateReads::values);
    const Update update = parameter_indices_.update_of(optimizer_parameters, state);
    LaunchGroup group;
    for (std::size_t i = 0; i < probes_.size(); ++i) {
      if (is_active(*probes_[i]) && takes_part(i, reads)) probes_[i]->before_update(update);
    }
    group.launch();
  }

  void after_update(const std::vector<at::Tensor>& optimizer_parameters, const OptimizerState* state) {
    const Update update = parameter_indices_.update_of(optimizer_parameters, state);
    LaunchGroup group;
    for (const auto& probe : probes_) {
      if (is_active(*probe)) probe->after_update(update);
    }
    group.launch();
  }

  void deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept {
    const auto index = parameter_indices_.of(parameter);
    if (gradient_hooks_ == nullptr || !index) return;
    gradient_hooks_->deliver(*index, gradient);
    if (norm_hooks_ != nullptr) norm_hooks_->deliver(*index, gradient);
  }

  // Call it after stop_reading().
  void end_step() {
    for (std::size_t i = first_reader_; awaits_values_ && i < gradient_probes_; ++i)
      probes_[i]->begin_step({}, rows_.active());
    for (const auto& probe : probes_) {
      if (is_active(*probe)) probe->write_rows(rows_);
    }
    rows_.end_step();
  }

  std::uint64_t not_applicable() const noexcept { return rows_.not_applicable(); }

 private:
  bool is_active(const Probe& probe) const { return (probe.readers() & rows_.active()) != 0; }
  bool reads(KindSet kinds, Readers readers = ~Readers{0}) const {
    return any_reads(watched_, kinds, readers);
  }

  bool takes_part(std::size_t probe, UpdateReads reads) const {
    switch (reads) {
      case UpdateReads::everything:
      case UpdateReads::everything_left_out:
        return true;
      case UpdateReads::gradients_and_moments:
        return probe < gradient_probes_;
      case UpdateReads::values:
        return probe >= gradient_probes_;
      case UpdateReads::weights:
      case UpdateReads::gradients:
        break;
    }
    return probes_[probe]->reads(reads);
  }

  template <typename P, typename... Arguments>
  P& add(Arguments&&... arguments) {
    auto probe = std::make_unique<P>(std::forward<Arguments>(arguments)...);
    P& added = *probe;
    probes_.push_back(std::move(probe));
    return added;
  }

  void add_gradient_probes(const HookSettings& settings, HookFuse& fuse) {
    constexpr KindSet unreduced = bit_of(Kind::grad_unreduced);
    if (!reads(unreduced | bit_of(Kind::grad_reduced) | kMoments | bit_of(Kind::other) | kHistograms)) return;
    GradientHookSettings reading;
    const ReadOptions options(settings.eps, settings.sample);
    reading.options = options;
    reading.scales = settings.gradient_scales;
    reading.passes = settings.passes;
    reading.micro_batches = settings.short_steps ? 1 : settings.grad_acc_steps;
    reading.readers = kInCollected | kInBetween;
    // A micro batch's gradient is not the step's.
    const bool apart = settings.per_micro_batch && reads(unreduced, kForNorms);
    if (apart) {
      reading.readers = kForNorms;
      norm_hooks_ = &add<GradientHooks>(watched_, reading, fuse);
      reading.readers = kForRows;
    }
    if (settings.per_micro_batch) reading.reads = GradientReads::each_micro_batch;
    auto& hooks = add<GradientHooks>(watched_, reading, fuse);
    gradient_hooks_ = &hooks;
    first_reader_ = probes_.size();
    if (reads(bit_of(Kind::grad_reduced)))
      probes_.push_back(make_gradient_probe(watched_, hooks, options, fuse));
    if (reads(kMoments)) probes_.push_back(make_moment_probe(watched_, hooks, options, fuse));
    if (reads(bit_of(Kind::other))) probes_.push_back(make_sign_agreement_probe(watched_, hooks));
    if (reads(kHistograms)) probes_.push_back(make_update_histogram_probe(watched_, hooks));
    gradient_probes_ = probes_.size();
  }

  void listen(const HookSettings& settings, HookFuse& fuse) {
    std::vector<ForwardListener*> listeners;
    for (const auto& probe : probes_) {
      if (ForwardListener* listener = probe->forward_listener()) listeners.push_back(listener);
    }
    if (listeners.empty()) return;
    tracker_ = std::make_unique<ForwardTracker>(modules_, settings.grad_acc_steps, std::move(listeners), fuse,
                                                settings.passes);
  }

  // Constant after construction.
  const std::vector<WatchedModule> modules_;
  const std::vector<WatchedTensor> watched_;
  const bool reads_moments_, reads_after_update_;
  // Training thread only.
  ParameterIndices parameter_indices_;
  RowWriter rows_;
  bool reading_ = false;        // a step is read
  bool awaits_values_ = false;  // gradients were passed early; rows only if their update follows
  // The first of probes_: GradientHooks, and from first_reader_ on those that read gradients and moments.
  std::size_t first_reader_ = 0, gradient_probes_ = 0;
  TapProbe* taps_ = nullptr;                 // one of the probes
  GradientHooks* gradient_hooks_ = nullptr;  // one of the probes
  GradientHooks* norm_hooks_ =
      nullptr;  // another, if the rows have each micro batch and norms need the step's
  std::vector<std::unique_ptr<Probe>> probes_;  // Keep before tracker_: detaches before the rest dies.
  std::unique_ptr<ForwardTracker> tracker_;     // Keep last: calls the probes. Null: no probe listens.
};

HookSet::HookSet(const HookSettings& settings, const WatchedModel& model, RecordStream& stream,
                 StackSource stack) noexcept {
  fuse_.guard("", [&] {
    matches_ = match_targets(settings.selection, target_names(model));
    auto watched = select(model, matches_.matched, settings, stream);
    attached_ = std::make_unique<Attached>(settings, model, std::move(watched), stream, std::move(stack),
                                           fuse_, matches_.unmatched);
  });
}

HookSet::~HookSet() = default;

void HookSet::begin_step(Step step, Readers active) noexcept {
  if (!attached_) return;
  if (attached_->active() != 0) attached_->stop_reading();
  if (fuse_.tripped()) return attached_->detach();
  if (active == 0) return attached_->release_hooks();
  fuse_.guard("", [&] { attached_->begin_step(step, active); });
}

void HookSet::gathered(const void* unit) noexcept {
  if (!reads() || fuse_.tripped()) return;
  fuse_.guard("", [&] { attached_->gathered(unit); });
}

void HookSet::before_update(const std::vector<at::Tensor>& optimizer_parameters,
                            const OptimizerState* state) noexcept {
  if (!reads() || fuse_.tripped()) return;
  fuse_.guard("", [&] { attached_->before_update(optimizer_parameters, state); });
}

void HookSet::after_update(const std::vector<at::Tensor>& optimizer_parameters,
                           const OptimizerState* state) noexcept {
  if (!reads() || fuse_.tripped()) return;
  fuse_.guard("", [&] { attached_->after_update(optimizer_parameters, state); });
}

void HookSet::tap(const TappedValue& value) noexcept {
  if (!reads() || (attached_->active() & kForRows) == 0 || fuse_.tripped()) return;
  fuse_.guard(value.name, [&] { attached_->tap(value); });
}

void HookSet::end_step() noexcept {
  if (!reads()) return;
  attached_->stop_reading();
  if (fuse_.tripped()) return;
  fuse_.guard("", [&] { attached_->end_step(); });
}

void HookSet::deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept {
  if (reads()) attached_->deliver_gradient(parameter, gradient);
}

const std::vector<WatchedTensor>& HookSet::parameters() const noexcept {
  static const std::vector<WatchedTensor> none;
  return attached_ ? attached_->parameters() : none;
}

bool HookSet::reads_moments() const noexcept { return attached_ && attached_->reads_moments(); }

bool HookSet::reads_after_update() const noexcept { return attached_ && attached_->reads_after_update(); }

bool HookSet::reads() const noexcept { return attached_ && attached_->active() != 0; }

std::uint64_t HookSet::not_applicable() const noexcept { return attached_ ? attached_->not_applicable() : 0; }

}  // namespace gradmon
