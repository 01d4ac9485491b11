// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/tensorboard/row_encoder.h"

#include <google/protobuf/io/coded_stream.h>

#include <cstring>
#include <utility>

#include "writers/sinks/columns.h"
#include "writers/sinks/tensorboard/event.pb.h"
#include "writers/sinks/tensorboard/histogram_event.h"
#include "writers/sinks/tensorboard/record_framing.h"
#include "writers/sinks/tensorboard/tags.h"

namespace gradmon {
namespace {

using google::protobuf::io::CodedOutputStream;
using tensorboard::Event;
using tensorboard::Summary;

enum class WireType : std::uint8_t { varint = 0, eight_bytes = 1, counted = 2, four_bytes = 5 };

// What stands before a field: one byte for a field number below 16.
constexpr std::uint8_t key_of(int field, WireType type) {
  return static_cast<std::uint8_t>(field << 3 | static_cast<int>(type));
}
constexpr std::uint8_t kWallTime = key_of(Event::kWallTimeFieldNumber, WireType::eight_bytes);
constexpr std::uint8_t kStep = key_of(Event::kStepFieldNumber, WireType::varint);
constexpr std::uint8_t kSummary = key_of(Event::kSummaryFieldNumber, WireType::counted);
constexpr std::uint8_t kValue = key_of(Summary::kValueFieldNumber, WireType::counted);
constexpr std::uint8_t kTag = key_of(Summary::Value::kTagFieldNumber, WireType::counted);
constexpr std::uint8_t kSimpleValue = key_of(Summary::Value::kSimpleValueFieldNumber, WireType::four_bytes);

std::uint32_t counted_size(std::size_t bytes) {
  return static_cast<std::uint32_t>(1 + CodedOutputStream::VarintSize32(static_cast<std::uint32_t>(bytes)) +
                                    bytes);
}

std::uint8_t* put_count(std::uint8_t key, std::uint32_t bytes, std::uint8_t* to) {
  *to++ = key;
  return CodedOutputStream::WriteVarint32ToArray(bytes, to);
}

std::uint8_t* put(std::string_view text, std::uint8_t* to) {
  if (!text.empty()) std::memcpy(to, text.data(), text.size());
  return to + text.size();
}

template <typename To, typename From>
To bits_of(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// One number with its tag, in three parts.
struct TaggedNumber {
  std::string_view target, micro_step, suffix;
  float number = 0;

  std::size_t tag_size() const { return target.size() + micro_step.size() + suffix.size(); }
  std::uint32_t size() const { return counted_size(tag_size()) + 5; }
  std::uint8_t* write(std::uint8_t* to) const {
    to = put_count(kValue, size(), to);
    to = put_count(kTag, static_cast<std::uint32_t>(tag_size()), to);
    to = put(suffix, put(micro_step, put(target, to)));
    *to++ = kSimpleValue;
    return CodedOutputStream::WriteLittleEndian32ToArray(bits_of<std::uint32_t>(number), to);
  }
};

void append_event(std::string& out, std::int64_t step, double wall_time, const TaggedNumber* begin,
                  const TaggedNumber* end) {
  std::uint32_t summary = 0;
  for (const TaggedNumber* one = begin; one != end; ++one) summary += counted_size(one->size());
  const auto step_bits = static_cast<std::uint64_t>(step);
  const std::size_t size = 9 + 1 + CodedOutputStream::VarintSize64(step_bits) + counted_size(summary);

  RecordFrame frame(out);
  frame.begin();
  const std::size_t data = out.size();
  out.resize(data + size);
  auto* to = reinterpret_cast<std::uint8_t*>(out.data() + data);
  *to++ = kWallTime;
  to = CodedOutputStream::WriteLittleEndian64ToArray(bits_of<std::uint64_t>(wall_time), to);
  *to++ = kStep;
  to = CodedOutputStream::WriteVarint64ToArray(step_bits, to);
  to = put_count(kSummary, summary, to);
  for (const TaggedNumber* one = begin; one != end; ++one) to = one->write(to);
  frame.end();
}

bool has(const Record& row, Column column) { return (row.mask & bit_of(column)) != 0; }
double value_of(const Record& row, Column column) { return row.values[static_cast<std::size_t>(column)]; }

}  // namespace

RowEncoder::RowEncoder(std::shared_ptr<const NameTable> names, Rank rank, const Layout& layout)
    : names_(std::move(names)), rank_(rank) {
  for (std::size_t index = 0; index < kKinds; ++index) {
    const auto kind = static_cast<Kind>(index);
    has_micro_step_[index] = gradmon::has_micro_step(kind, layout);
    for (const RowColumn& column : columns_of(kind, layout)) {
      if (column.source != RowColumn::Source::number && column.source != RowColumn::Source::count) continue;
      curves_[index].push_back({column.value, tag_suffix(kind, column.title, layout, rank)});
    }
  }
}

void RowEncoder::append(std::string& out, const Record& row, double wall_time) {
  if (row.kind == Kind::scalar) return append_scalar(out, row, wall_time);
  const auto kind = static_cast<std::size_t>(row.kind);
  const std::string_view target = target_of(row.target);
  const std::string_view micro_step =
      has_micro_step_[kind] ? micro_step_text(row.micro_step) : std::string_view();
  std::array<TaggedNumber, kValues> numbers;
  std::size_t count = 0;
  for (const Curve& curve : curves_[kind]) {
    if ((row.mask >> curve.value & 1U) == 0) continue;
    numbers[count++] = {target, micro_step, curve.suffix, static_cast<float>(row.values[curve.value])};
  }
  if (count > 0) append_event(out, row.step, wall_time, numbers.data(), numbers.data() + count);
}

void RowEncoder::append(std::string& out, const Histogram& histogram, double wall_time) {
  std::string tag(target_of(histogram.target));
  tag += histogram_tag_suffix(histogram.kind, rank_);
  out += histogram_record(tag, histogram.counts, Step{histogram.step}, wall_time);
}

void RowEncoder::append_scalar(std::string& out, const Record& row, double wall_time) {
  if (!has(row, Column::value)) return;
  const std::string_view target = target_of(row.target);
  const std::string_view name = target.substr(target.find(':') + 1);
  TaggedNumber number{name, {}, {}, static_cast<float>(value_of(row, Column::value))};
  append_event(out, row.step, wall_time, &number, &number + 1);
  const double samples = value_of(row, Column::samples);
  const bool counted = has(row, Column::samples) && samples >= 0 && samples < 0x1p63;
  if (!counted || !drawn_over_samples(name)) return;
  number.suffix = kOverSamples;
  append_event(out, static_cast<std::int64_t>(samples), wall_time, &number, &number + 1);
}

std::string_view RowEncoder::target_of(std::uint32_t id) {
  if (id < targets_.size() && !targets_[id].empty()) return targets_[id];
  if (id >= names_->size()) id = 0;
  if (id >= targets_.size()) targets_.resize(id + std::size_t{1});
  return targets_[id] = tag_of_target(names_->vpp_stage(id), names_->name(id));
}

std::string_view RowEncoder::micro_step_text(std::int32_t micro_step) {
  if (micro_step_ != micro_step || micro_step_text_.empty()) {
    micro_step_ = micro_step;
    micro_step_text_ = ":" + std::to_string(micro_step);
  }
  return micro_step_text_;
}

}  // namespace gradmon
