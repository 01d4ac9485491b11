// SPDX-License-Identifier: Apache-2.0
#include "hooks/hook_set.h"

#include <unordered_set>
#include <utility>

#include "hooks/gradient_hooks.h"
#include "hooks/row_writer.h"
#include "hooks/squash_name.h"
#include "hooks/weight_probe.h"

namespace gradmon {
namespace {

std::vector<TargetName> names_of(const std::vector<WatchedParameter>& parameters) {
  std::vector<TargetName> names;
  for (const WatchedParameter& parameter : parameters) names.push_back({parameter.vpp_stage, parameter.name});
  return names;
}

std::vector<Watched> select(const std::vector<WatchedParameter>& parameters,
                            const std::vector<std::size_t>& matched, Squash squash, RecordStream& stream) {
  const auto names = record_names(names_of(parameters), squash);
  std::unordered_set<const void*> seen;
  std::vector<Watched> watched;
  for (const std::size_t i : matched) {
    const at::Tensor& tensor = parameters[i].tensor;
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    watched.push_back({tensor, names[i], stream.target_id(parameters[i].vpp_stage, names[i]), i});
  }
  return watched;
}

bool all_zeros(const Reading& reading) {
  const auto& values = reading.stats.values;
  return values[static_cast<std::size_t>(Op::min)] == 0 && values[static_cast<std::size_t>(Op::max)] == 0;
}

}  // namespace

class HookSet::Attached {
 public:
  Attached(const HookSettings& settings, std::vector<Watched> watched, RecordStream& stream, HookFuse& fuse)
      : watched_(std::move(watched)),
        weights_(settings.weights),
        rows_(stream, settings.revision, settings.ops),
        probe_(watched_, settings.eps, fuse) {
    if (settings.gradients) gradients_ = std::make_unique<GradientHooks>(watched_, settings.eps, fuse);
  }

  void begin_step(Step step) {
    step_ = step;
    probe_.begin_step();
    if (gradients_) gradients_->begin_step();
    collecting_ = true;
  }

  void stop_collecting() noexcept {
    collecting_ = false;
    if (gradients_) gradients_->disarm();
  }

  void detach() noexcept { gradients_.reset(); }

  bool collecting() const noexcept { return collecting_; }

  void before_update(const std::vector<at::Tensor>& optimizer_parameters) {
    for (const std::size_t i : probe_.places_of(optimizer_parameters)) {
      if (gradients_ && (gradients_->fired(i) || gradients_->touched(i))) probe_.read_gradient(i);
      if (weights_) probe_.read_origin(i);
    }
  }

  void after_update(const std::vector<at::Tensor>& optimizer_parameters) {
    if (!weights_) return;
    for (const std::size_t i : probe_.places_of(optimizer_parameters)) probe_.read_updated(i);
  }

  void end_step() {
    if (gradients_) write_gradients();
    if (!weights_) return;
    write(Kind::param_origin, probe_.origins());
    write(Kind::param_updated, probe_.updates());
  }

  HookCounts counts() const noexcept {
    const RowCounts& rows = rows_.counts();
    return {watched_.size(), gradients_ ? gradients_->attached() : 0, rows.rows, rows.refused,
            rows.not_applicable};
  }

 private:
  void write_gradients() {
    std::uint64_t sequence = 0;
    for (const std::size_t i : gradients_->arrivals()) {
      rows_.write(Kind::grad_unreduced, step_, sequence++, watched_[i], gradients_->reading(i));
    }
    for (std::size_t i = 0; i < watched_.size(); ++i) {
      const Reading& reading = probe_.gradients()[i];
      if (!gradients_->fired(i) && all_zeros(reading)) continue;
      rows_.write(Kind::grad_reduced, step_, watched_[i].place, watched_[i], reading);
    }
  }

  void write(Kind kind, const std::vector<Reading>& readings) {
    for (std::size_t i = 0; i < watched_.size(); ++i) {
      rows_.write(kind, step_, watched_[i].place, watched_[i], readings[i]);
    }
  }

  // Constant after construction.
  const std::vector<Watched> watched_;
  const bool weights_;
  // The training thread's.
  RowWriter rows_;
  WeightProbe probe_;
  Step step_;
  bool collecting_ = false;
  std::unique_ptr<GradientHooks> gradients_;  // Keep last: detaches before the rest dies.
};

HookSet::HookSet(HookSettings settings, const std::vector<WatchedParameter>& parameters,
                 RecordStream& stream) noexcept {
  fuse_.guard("", [&] {
    matches_ = match_targets(settings.selection, names_of(parameters));
    auto watched =
        select(parameters, matches_.matched, settings.squash_name ? Squash::yes : Squash::no, stream);
    attached_ = std::make_unique<Attached>(settings, std::move(watched), stream, fuse_);
  });
}

HookSet::~HookSet() = default;

void HookSet::begin_step(Step step, Collect collect) noexcept {
  if (!attached_) return;
  if (attached_->collecting()) attached_->stop_collecting();
  if (fuse_.tripped()) return attached_->detach();
  if (collect == Collect::no) return;
  fuse_.guard("", [&] { attached_->begin_step(step); });
}

void HookSet::before_update(const std::vector<at::Tensor>& optimizer_parameters) noexcept {
  if (!attached_ || !attached_->collecting() || fuse_.tripped()) return;
  fuse_.guard("", [&] { attached_->before_update(optimizer_parameters); });
}

void HookSet::after_update(const std::vector<at::Tensor>& optimizer_parameters) noexcept {
  if (!attached_ || !attached_->collecting() || fuse_.tripped()) return;
  fuse_.guard("", [&] { attached_->after_update(optimizer_parameters); });
}

void HookSet::end_step() noexcept {
  if (!attached_ || !attached_->collecting()) return;
  attached_->stop_collecting();
  if (fuse_.tripped()) return;
  fuse_.guard("", [&] { attached_->end_step(); });
}

const MatchReport& HookSet::matches() const noexcept { return matches_; }

HookCounts HookSet::counts() const noexcept { return attached_ ? attached_->counts() : HookCounts{}; }

std::optional<HookFailure> HookSet::failure() const { return fuse_.failure(); }

}  // namespace gradmon
