// SPDX-License-Identifier: Apache-2.0
#include "hooks/gradients/weight_probe.h"

namespace gradmon {

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
