// SPDX-License-Identifier: Apache-2.0
#include "hooks/activation_rows.h"

#include <utility>

namespace gradmon {

void ActivationRows::begin_step() {
  gate_.close();
  known_.begin_step();
  take_rows();
  step_.store(gate_.open(), std::memory_order_release);
}

std::vector<ActivationRows::Row> ActivationRows::take_rows() {
  const std::lock_guard lock(mutex_);
  gradients_.clear();
  return std::exchange(rows_, {});
}

void ActivationRows::add(Row row, const at::Tensor& tensor) {
  row.reading = known_.take(tensor, row.micro_step, row.name, fuse_);
  keep(std::move(row));
}

void ActivationRows::add_without_gradient(Row row) {
  row.needs_none = true;
  keep(std::move(row));
}

void ActivationRows::keep(Row row) {
  const std::lock_guard lock(mutex_);
  if (row.kind == Kind::actv_grad) {
    const auto [known, fresh] =
        gradients_.try_emplace({row.vpp_stage, row.name, row.micro_step}, rows_.size());
    if (!fresh) {
      if (!row.needs_none) rows_[known->second] = std::move(row);
      return;
    }
  }
  rows_.push_back(std::move(row));
}

}  // namespace gradmon
