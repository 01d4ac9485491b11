// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradient_probe.h"

namespace gradmon {
namespace {

bool all_zeros(const Reading& reading) {
  const auto& values = reading.stats.values;
  return values[static_cast<std::size_t>(Op::min)] == 0 && values[static_cast<std::size_t>(Op::max)] == 0;
}

}  // namespace

GradientProbe::GradientProbe(const std::vector<Watched>& watched, double eps, HookFuse& fuse)
    : watched_(watched), eps_(eps), fuse_(fuse), reduced_(watched.size()), hooks_(watched, eps, fuse) {}

void GradientProbe::begin_step(Step) {
  forget(reduced_);
  hooks_.begin_step();
}

void GradientProbe::before_update(const Update& update) {
  for (const std::size_t i : update.places) {
    if (!hooks_.fired(i) && !hooks_.touched(i)) continue;
    const at::Tensor& gradient = watched_[i].tensor.grad();
    reduced_[i].present = false;
    if (gradient.defined()) reduced_[i].take(gradient, eps_, watched_[i].name, fuse_);
  }
}

void GradientProbe::write_rows(RowWriter& rows) {
  std::uint64_t sequence = 0;
  for (const std::size_t i : hooks_.arrivals()) {
    rows.write({Kind::grad_unreduced, watched_[i].target, sequence++}, hooks_.reading(i), watched_[i].name);
  }
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    if (!hooks_.fired(i) && all_zeros(reduced_[i])) reduced_[i].present = false;
  }
  write_in_order(rows, Kind::grad_reduced, watched_, reduced_);
}

}  // namespace gradmon
