// SPDX-License-Identifier: Apache-2.0
#include "hooks/activations/activation_rows.h"

#include <algorithm>
#include <utility>

namespace gradmon {

void ActivationRows::begin_step() {
  gate_.close();
  cache_.begin_step();
  take_rows();
  step_.store(gate_.open(), std::memory_order_release);
}

std::vector<ActivationRows::Row> ActivationRows::take_rows() {
  const std::lock_guard lock(mutex_);
  gradients_.clear();
  return std::exchange(rows_, {});
}

void ActivationRows::add(Row row, const at::Tensor& tensor, const ScopeText& scope) {
  if (is_full()) return;
  row.reading = cache_.read(tensor, row.micro_step, row.name, fuse_);
  if (scope) row.reading.scope = scope;
  keep(std::move(row));
}

bool ActivationRows::is_full() {
  const std::lock_guard lock(mutex_);
  return limit_.reached(rows_.size());
}

void ActivationRows::note_not_applicable(const Row& row, const std::string& why) {
  const std::lock_guard lock(mutex_);
  not_applicable_.emplace(std::pair(row.vpp_stage, row.name), why);
}

ActivationRows::Reasons ActivationRows::take_not_applicable() {
  const std::lock_guard lock(mutex_);
  return std::exchange(not_applicable_, {});
}

void ActivationRows::drop(int vpp_stage, int micro_step) {
  const std::lock_guard lock(mutex_);
  rows_.erase(std::remove_if(
                  rows_.begin(), rows_.end(),
                  [&](const Row& row) { return row.vpp_stage == vpp_stage && row.micro_step == micro_step; }),
              rows_.end());
  gradients_.clear();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (row.kind == Kind::actv_grad)
      gradients_.emplace(std::tuple(row.vpp_stage, row.name, row.micro_step), i);
  }
}

void ActivationRows::keep(Row row) {
  const std::lock_guard lock(mutex_);
  if (row.kind == Kind::actv_grad) {
    const auto [known, fresh] =
        gradients_.try_emplace({row.vpp_stage, row.name, row.micro_step}, rows_.size());
    if (!fresh) {
      rows_[known->second] = std::move(row);
      return;
    }
  }
  rows_.push_back(std::move(row));
}

}  // namespace gradmon
