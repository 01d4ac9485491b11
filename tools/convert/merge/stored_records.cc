// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/merge/stored_records.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tools/analyse/rows/row.h"

namespace gradmon {
namespace {

std::optional<Kind> kind_of(const StoredMetric& metric) {
  const auto kind = kind_named(metric.name);
  return kind && metric.id == metric_id_of(*kind) ? kind : std::nullopt;
}

Layout layout_of(const StoredMetric& metric) {
  Layout layout;
  layout.ops.clear();
  for (std::size_t op = 0; op < kOps; ++op) {
    const std::string name = name_of(static_cast<Op>(op));
    if (std::count(metric.stats.begin(), metric.stats.end(), name) > 0)
      layout.ops.push_back(static_cast<Op>(op));
  }
  layout.micro_step_in_grad_unreduced = true;  // it is 0 where there is none
  return layout;
}

}  // namespace

tl::expected<StoredRecords, std::string> StoredRecords::make(RankDatabase& from, const StoredMetric& metric,
                                                             std::int64_t rank,
                                                             std::shared_ptr<NameTable> names) {
  const auto kind = kind_of(metric);
  if (!kind)
    return tl::unexpected("found the metric \"" + metric.name + "\" with the id " +
                          std::to_string(metric.id) + "; expected one that this version of gradmon knows");
  StoredRecords made;
  made.kind_ = *kind;
  made.layout_ = layout_of(metric);
  made.names_ = std::move(names);
  const std::vector<MetricStat> known = metric_stats_of(*kind, made.layout_);
  for (const std::string& stat : metric.stats) {
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const MetricStat& one) { return stat == one.name; });
    if (found == known.end())
      return tl::unexpected("found the statistic \"" + stat + "\" of " + metric.name +
                            "; expected one that this version of gradmon knows");
    made.stats_.push_back({found->value, found->nan_bit});
  }
  auto notes = from.tensors(metric.id, rank);
  if (!notes) return tl::unexpected(notes.error());
  made.notes_ = std::move(*notes);
  return made;
}

tl::expected<StoredRecords::Tensor, std::string> StoredRecords::tensor_of(const RankDatabase::Row& row) {
  Tensor& known = tensors_[row.target_id];
  if (known.first_step <= row.step && row.step <= known.last_step) return known;
  const auto note = notes_.at(row.target_id, row.step);
  if (!note) return tl::unexpected(note.error());
  known = {note->first_step, note->last_step, names_->intern_shape(note->shape), dtype_named(note->dtype)};
  return known;
}

tl::expected<std::optional<Record>, std::string> StoredRecords::record_of(RankDatabase& from,
                                                                          const RankDatabase::Row& row) {
  const auto target = from.target(row.target_id);
  if (!target) return tl::unexpected(target.error());
  if (*target == nullptr) return std::nullopt;
  const auto small = [](std::int64_t value) {
    return static_cast<int>(std::clamp<std::int64_t>(value, 0, std::numeric_limits<int>::max()));
  };
  Record record;
  record.kind = kind_;
  record.step = row.step;
  record.target = names_->intern((*target)->name, small((*target)->vpp_stage));
  record.micro_step = small((*target)->micro_step);
  for (std::size_t i = 0; i < stats_.size(); ++i) {
    const bool is_nan = (row.nan_mask >> stats_[i].nan_bit & 1) != 0;
    if (!row.values[i] && !is_nan) continue;
    record.values[stats_[i].value] = row.values[i].value_or(std::numeric_limits<double>::quiet_NaN());
    record.mask = static_cast<ValueMask>(record.mask | 1U << stats_[i].value);
  }
  const auto tensor = tensor_of(row);
  if (!tensor) return tl::unexpected(tensor.error());
  record.shape = tensor->shape;
  record.dtype = tensor->dtype;
  return record;
}

}  // namespace gradmon
