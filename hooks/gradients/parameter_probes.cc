// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradients/parameter_probes.h"

#include <algorithm>
#include <string>

#include "hooks/rows/optimizer_state.h"

namespace gradmon {

GradientProbe::GradientProbe(const std::vector<WatchedTensor>& watched, GradientHooks& hooks, double eps,
                             HookFuse& fuse)
    : watched_(watched), hooks_(hooks), eps_(eps), fuse_(fuse), reduced_(watched.size()) {}

void GradientProbe::begin_step(Step) { forget(reduced_); }

void GradientProbe::before_update(const Update& update) {
  const double scale = update.state ? update.state->gradient_scale() : 1;
  const UpdateReads reads = update.reads();  // at the end of an iteration zero_grad() may have run first
  const bool at_the_end = reads == UpdateReads::gradients || reads == UpdateReads::everything_left_out;
  for (const std::size_t i : update.parameter_indices) {
    reduced_[i].has_value = false;
    if (!hooks_.took_part(i)) continue;
    const at::Tensor gradient = update.gradient_of(*watched_[i].tensor);
    if (gradient.defined()) reduced_[i].read_part(watched_[i], gradient, eps_, fuse_, scale);
    if (at_the_end && reduced_[i].has_value && !reduced_[i].pending && has_only_zeros(reduced_[i].stats))
      reduced_[i].mark_not_applicable(
          "zeros at the end of an iteration without a step(): zero_grad() came first");
  }
}

void GradientProbe::write_rows(RowWriter& rows) {
  write_in_order(rows, Kind::grad_reduced, watched_, reduced_,
                 [&](std::size_t i) { return hooks_.unless_zeros(i); });
}

MomentProbe::MomentProbe(const std::vector<WatchedTensor>& watched, GradientHooks& hooks, double eps,
                         HookFuse& fuse)
    : watched_(watched),
      hooks_(hooks),
      eps_(eps),
      fuse_(fuse),
      keeps_(watched.size()),
      first_(watched.size()),
      second_(watched.size()) {}

void MomentProbe::begin_step(Step) {
  std::fill(keeps_.begin(), keeps_.end(), Keeps{});
  forget(first_);
  forget(second_);
}

void MomentProbe::before_update(const Update& update) {
  for (const std::size_t i : update.parameter_indices) {
    if (keeps_[i].seen || !hooks_.took_part(i)) continue;
    const WatchedTensor& parameter = watched_[i];
    const ParameterState state = update.state ? update.state->of(*parameter.tensor) : ParameterState{};
    keeps_[i] = {true, state.first_moment.has_value(), state.second_moment.has_value()};
    if (state.first_moment && state.first_moment->defined())
      first_[i].read_part(parameter, *state.first_moment, eps_, fuse_);
    if (state.second_moment && state.second_moment->defined())
      second_[i].read_part(parameter, *state.second_moment, eps_, fuse_);
  }
}

void MomentProbe::write_rows(RowWriter& rows) {
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const Keeps& keeps = keeps_[i];
    if (!keeps.seen || (keeps.first && keeps.second)) continue;
    const bool neither = !keeps.first && !keeps.second;
    const char* what = neither ? "exp_avg or exp_avg_sq" : keeps.first ? "exp_avg_sq" : "exp_avg";
    const std::string why = std::string("its optimizer keeps no ") + what + " that gradmon can read";
    const Kind kind = keeps.first ? Kind::exp_avg_sq : Kind::exp_avg;
    rows.count_not_applicable(kind, watched_[i].target, watched_[i].name, why);
    if (neither) rows.note_reason(Kind::exp_avg_sq, watched_[i].target, why);
  }
  const auto unless_zeros = [&](std::size_t i) { return hooks_.unless_zeros(i); };
  write_in_order(rows, Kind::exp_avg, watched_, first_, unless_zeros);
  write_in_order(rows, Kind::exp_avg_sq, watched_, second_, unless_zeros);
}

WeightProbe::WeightProbe(const std::vector<WatchedTensor>& watched, double eps, HookFuse& fuse)
    : watched_(watched), eps_(eps), fuse_(fuse), origins_(watched.size()), updates_(watched.size()) {}

void WeightProbe::begin_step(Step) {
  forget(origins_);
  forget(updates_);
}

void WeightProbe::before_update(const Update& update) {
  for (const std::size_t i : update.parameter_indices) {
    if (!origins_[i].has_value) read(i, update, origins_);
  }
}

void WeightProbe::after_update(const Update& update) {
  for (const std::size_t i : update.parameter_indices) read(i, update, updates_);
}

void WeightProbe::read(std::size_t index, const Update& update, std::vector<Reading>& readings) {
  const at::Tensor value = update.value_of(*watched_[index].tensor);
  if (value.defined()) readings[index].read_part(watched_[index], value, eps_, fuse_);
}

void WeightProbe::write_rows(RowWriter& rows) {
  write_in_order(rows, Kind::param_origin, watched_, origins_);
  write_in_order(rows, Kind::param_updated, watched_, updates_);
}

}  // namespace gradmon
