// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/row_records.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "writers/sinks/columns.h"

namespace gradmon {
namespace {

constexpr std::uint32_t kAllOps = (1U << kOps) - 1;

Layout without_ops() {
  Layout layout;
  layout.ops.clear();
  return layout;
}

// True if a kind's value is a statistic of a tensor, not of the kind's own columns.
bool has_ops(Kind kind) {
  Layout one = without_ops();
  one.ops = {Op::norm};
  return columns_of(kind, one).size() > columns_of(kind, without_ops()).size();
}

}  // namespace

RowRecords::RowRecords(Kind kind, std::shared_ptr<NameTable> names)
    : kind_(kind), names_(std::move(names)), layout_(without_ops()) {
  using Source = RowColumn::Source;
  for (const RowColumn& column : columns_of(kind, layout_)) {
    if (column.source != Source::number && column.source != Source::count) continue;
    features_.push_back({field_named(column.title), column.value});
  }
  if (!has_ops(kind)) ops_ = kAllOps;
}

bool RowRecords::extend_layout(const Row& row) {
  bool extended = false;
  const std::uint32_t missing = row.mask & kAllOps & ~ops_;
  for (Field op = 0; missing != 0 && op < kOps; ++op) {
    if ((missing >> op & 1U) == 0) continue;
    layout_.ops.push_back(static_cast<Op>(op));
    ops_ |= 1U << op;
    extended = true;
  }
  if (kind_ == Kind::grad_unreduced && row.micro_step >= 0 && !layout_.micro_step_in_grad_unreduced)
    extended = layout_.micro_step_in_grad_unreduced = true;
  return extended;
}

RowRecords::Target& RowRecords::target_of(const RankRows& rows, const Row& row) {
  if (rows.target() >= targets_.size()) targets_.resize(rows.target() + std::size_t{1});
  Target& target = targets_[rows.target()];
  if (target.id == 0) target.id = names_->intern(row.name, row.vpp_stage);
  if (target.shape == nullptr || *target.shape != row.shape) {
    target.shape_id = names_->intern_shape(row.shape);
    target.shape = &names_->name(target.shape_id);
  }
  if (row.dtype != name_of(target.dtype)) target.dtype = dtype_named(row.dtype);
  return target;
}

Record RowRecords::record_of(const RankRows& rows, const Row& row) {
  const Target& target = target_of(rows, row);
  Record record;
  record.step = row.step;
  record.target = target.id;
  record.shape = target.shape_id;
  record.dtype = target.dtype;
  record.micro_step = std::max(row.micro_step, 0);
  record.kind = kind_;
  if (!layout_.ops.empty()) {
    std::copy_n(row.values.begin(), kOps, record.values.begin());
    record.mask = static_cast<ValueMask>(row.mask & kAllOps);
  }
  for (const Feature& feature : features_) {
    if (!row.has(feature.field)) continue;
    record.values[feature.value] = row.values[feature.field];
    record.mask = static_cast<ValueMask>(record.mask | 1U << feature.value);
  }
  return record;
}

}  // namespace gradmon
