// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradients/gradient_probe.h"

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

}  // namespace gradmon
