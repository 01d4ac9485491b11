// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/row_encoder.h"

#include <algorithm>
#include <utility>

#include "control/text/utf8.h"
#include "writers/sinks/columns.h"
#include "writers/sinks/event_records.h"

namespace gradmon {
namespace {

void append_utf8(std::string& out, std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = utf8_character(text, at).bytes;
    out += bytes == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(at, bytes);
    at += std::max<std::size_t>(bytes, 1);
  }
}

bool has(const Record& row, Column column) { return (row.mask & bit_of(column)) != 0; }
double value_of(const Record& row, Column column) { return row.values[static_cast<std::size_t>(column)]; }

}  // namespace

std::string tag_of_target(int vpp_stage, std::string_view name) {
  std::string tag = std::to_string(vpp_stage) + ":";
  append_utf8(tag, name);
  return tag;
}

std::string_view without_first_stage(std::string_view target) {
  const std::string_view name = target.substr(target.find(':') + 1);
  const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  const bool like_a_stage = digits > 0 && digits < name.size() && name[digits] == ':';
  return target.rfind("0:", 0) == 0 && !like_a_stage ? name : target;
}

std::string column_in_tag(Kind kind, std::string_view column, const Layout& layout, Rank rank) {
  const std::string name(column);
  if (layout.tags == TagForm::gradmon) return std::string(name_of(kind)) + "_" + name + "/";
  return "/rank" + std::to_string(rank.value) + "/" + task_of(kind, layout) + "_" + name;
}

std::string histogram_tag(Kind kind, std::string_view target, TagForm form, Rank rank) {
  if (form == TagForm::gradmon)
    return std::string(name_of(kind)) + "/" + std::string(without_first_stage(target));
  return std::string(target) + "/rank" + std::to_string(rank.value) + "/" + name_of(kind);
}

bool drawn_over_samples(std::string_view scalar) {
  constexpr std::array<std::string_view, 3> kOverStepsOnly = {
      "throughput_linearity", "model-flops-throughput-per-device", "B-samples-per-day"};
  return std::find(kOverStepsOnly.begin(), kOverStepsOnly.end(), scalar) == kOverStepsOnly.end();
}

RowEncoder::RowEncoder(std::shared_ptr<const NameTable> names, Rank rank, const Layout& layout)
    : names_(std::move(names)), rank_(rank), form_(layout.tags) {
  for (std::size_t index = 0; index < kKinds; ++index) {
    const auto kind = static_cast<Kind>(index);
    has_micro_step_[index] = gradmon::has_micro_step(kind, layout);
    for (const RowColumn& column : columns_of(kind, layout)) {
      if (column.source != RowColumn::Source::number && column.source != RowColumn::Source::count) continue;
      curves_[index].push_back({column.value, column_in_tag(kind, column.title, layout, rank)});
    }
  }
}

void RowEncoder::append(std::string& out, const Record& row, double wall_time) {
  if (row.kind == Kind::scalar) return append_scalar(out, row, wall_time);
  const auto kind = static_cast<std::size_t>(row.kind);
  const std::string_view target = target_tag(row.target);
  const std::string_view micro_step =
      has_micro_step_[kind] ? micro_step_text(row.micro_step) : std::string_view();
  std::array<TaggedNumber, kValues> numbers;
  std::size_t count = 0;
  for (const Curve& curve : curves_[kind]) {
    if ((row.mask >> curve.value & 1U) == 0) continue;
    TaggedNumber& number = numbers[count++];
    number.number = static_cast<float>(row.values[curve.value]);
    if (form_ == TagForm::gradmon) {
      number.tag = {curve.column, without_first_stage(target), micro_step};
    } else {
      number.tag = {target, micro_step, curve.column};
    }
  }
  if (count > 0) append_scalar_event(out, row.step, wall_time, numbers.data(), numbers.data() + count);
}

void RowEncoder::append(std::string& out, const Histogram& histogram, double wall_time) {
  const std::string tag = histogram_tag(histogram.kind, target_tag(histogram.target), form_, rank_);
  out += histogram_record(tag, histogram.counts, Step{histogram.step}, wall_time);
}

void RowEncoder::append_scalar(std::string& out, const Record& row, double wall_time) {
  if (!has(row, Column::value)) return;
  const std::string_view target = target_tag(row.target);
  const std::string_view name = target.substr(target.find(':') + 1);
  TaggedNumber number{{name, {}, {}}, static_cast<float>(value_of(row, Column::value))};
  append_scalar_event(out, row.step, wall_time, &number, &number + 1);
  const double samples = value_of(row, Column::samples);
  const bool counted = has(row, Column::samples) && samples >= 0 && samples < 0x1p63;
  if (!counted || !drawn_over_samples(name)) return;
  number.tag[1] = kOverSamples;
  append_scalar_event(out, static_cast<std::int64_t>(samples), wall_time, &number, &number + 1);
}

std::string_view RowEncoder::target_tag(std::uint32_t id) {
  if (id < targets_.size() && !targets_[id].empty()) return targets_[id];
  if (id >= names_->size()) id = 0;
  if (id >= targets_.size()) targets_.resize(id + std::size_t{1});
  return targets_[id] = tag_of_target(names_->vpp_stage(id), names_->name(id));
}

std::string_view RowEncoder::micro_step_text(std::int32_t micro_step) {
  if (micro_step_ != micro_step || micro_step_text_.empty()) {
    micro_step_ = micro_step;
    micro_step_text_ = (form_ == TagForm::gradmon ? ":micro" : ":") + std::to_string(micro_step);
  }
  return micro_step_text_;
}

}  // namespace gradmon
