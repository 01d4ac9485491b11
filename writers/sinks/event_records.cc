// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/event_records.h"

#include <google/protobuf/io/coded_stream.h>
#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "writers/sinks/event.pb.h"

namespace gradmon {
namespace {

constexpr std::size_t kLengthBytes = 8;
static_assert(kRecordHeaderBytes == kLengthBytes + kRecordFooterBytes);

std::uint32_t crc32c(std::string_view bytes) {
  constexpr std::size_t kMost = std::numeric_limits<int>::max();
  std::uint32_t crc = ~0U;
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, kMost);
    // crc32_iscsi() does not change the bytes.
    auto* const begin = reinterpret_cast<unsigned char*>(const_cast<char*>(part.data()));
    crc = crc32_iscsi(begin, static_cast<int>(part.size()), crc);
    bytes.remove_prefix(part.size());
  }
  return ~crc;
}

template <typename Integer>
void put_little_endian(char* to, Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i) to[i] = static_cast<char>(value >> (8 * i) & 0xff);
}

template <typename Integer>
Integer little_endian(std::string_view bytes) {
  Integer value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i)
    value |= static_cast<Integer>(Integer{static_cast<unsigned char>(bytes[i])} << (8 * i));
  return value;
}

using google::protobuf::io::CodedOutputStream;
using tensorboard::Event;
using tensorboard::Summary;

enum class WireType : std::uint8_t { varint = 0, eight_bytes = 1, counted = 2, four_bytes = 5 };

// The byte before a field: one byte for a field number below 16.
constexpr std::uint8_t field_key(int field, WireType type) {
  return static_cast<std::uint8_t>(field << 3 | static_cast<int>(type));
}
constexpr std::uint8_t kWallTime = field_key(Event::kWallTimeFieldNumber, WireType::eight_bytes);
constexpr std::uint8_t kStep = field_key(Event::kStepFieldNumber, WireType::varint);
constexpr std::uint8_t kSummary = field_key(Event::kSummaryFieldNumber, WireType::counted);
constexpr std::uint8_t kValue = field_key(Summary::kValueFieldNumber, WireType::counted);
constexpr std::uint8_t kTag = field_key(Summary::Value::kTagFieldNumber, WireType::counted);
constexpr std::uint8_t kSimpleValue =
    field_key(Summary::Value::kSimpleValueFieldNumber, WireType::four_bytes);

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
To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

std::size_t tag_size(const TaggedNumber& one) {
  return one.tag[0].size() + one.tag[1].size() + one.tag[2].size();
}

std::uint32_t value_size(const TaggedNumber& one) { return counted_size(tag_size(one)) + 5; }

std::uint8_t* write(const TaggedNumber& one, std::uint8_t* to) {
  to = put_count(kValue, value_size(one), to);
  to = put_count(kTag, static_cast<std::uint32_t>(tag_size(one)), to);
  for (const std::string_view part : one.tag) to = put(part, to);
  *to++ = kSimpleValue;
  return CodedOutputStream::WriteLittleEndian32ToArray(bit_cast<std::uint32_t>(one.number), to);
}

// The position of edge 0 … kBins. The middle edge is exactly 0.
double edge(std::size_t number) { return 2.0 * static_cast<double>(number) / kBins - 1.0; }

constexpr int kStringType = 7;  // DT_STRING of TensorFlow's types.proto

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

std::string record_of(std::string_view data) {
  std::string record;
  RecordFrame frame(record);
  frame.begin();
  record += data;
  frame.end();
  return record;
}

std::optional<std::uint64_t> record_length(std::string_view header) {
  const std::string_view length = header.substr(0, kLengthBytes);
  if (!is_footer_of(length, header.substr(kLengthBytes))) return std::nullopt;
  return little_endian<std::uint64_t>(length);
}

bool is_footer_of(std::string_view data, std::string_view footer) {
  return masked_crc32c(data) == little_endian<std::uint32_t>(footer);
}

std::optional<std::string_view> first_record(std::string_view bytes) {
  if (bytes.size() < size_of_record("")) return std::nullopt;
  const auto length = record_length(bytes.substr(0, kRecordHeaderBytes));
  if (!length || *length > bytes.size() - size_of_record("")) return std::nullopt;
  const std::string_view data = bytes.substr(kRecordHeaderBytes, *length);
  if (!is_footer_of(data, bytes.substr(kRecordHeaderBytes + data.size(), kRecordFooterBytes)))
    return std::nullopt;
  return data;
}

std::size_t size_of_record(std::string_view data) {
  return kRecordHeaderBytes + data.size() + kRecordFooterBytes;
}

void RecordFrame::begin() {
  out_.append(kRecordHeaderBytes, '\0');
  data_ = out_.size();
}

void RecordFrame::end() {
  char* const header = out_.data() + data_ - kRecordHeaderBytes;
  put_little_endian(header, std::uint64_t{out_.size() - data_});
  put_little_endian(header + kLengthBytes, masked_crc32c({header, kLengthBytes}));
  char footer[kRecordFooterBytes];
  put_little_endian(footer, masked_crc32c(std::string_view(out_).substr(data_)));
  out_.append(footer, sizeof footer);
}

void append_scalar_event(std::string& out, std::int64_t step, double wall_time, const TaggedNumber* begin,
                         const TaggedNumber* end) {
  std::uint32_t summary = 0;
  for (const TaggedNumber* one = begin; one != end; ++one) summary += counted_size(value_size(*one));
  const auto step_bits = static_cast<std::uint64_t>(step);
  const std::size_t size = 9 + 1 + CodedOutputStream::VarintSize64(step_bits) + counted_size(summary);

  RecordFrame frame(out);
  frame.begin();
  const std::size_t data = out.size();
  out.resize(data + size);
  auto* to = reinterpret_cast<std::uint8_t*>(out.data() + data);
  *to++ = kWallTime;
  to = CodedOutputStream::WriteLittleEndian64ToArray(bit_cast<std::uint64_t>(wall_time), to);
  *to++ = kStep;
  to = CodedOutputStream::WriteVarint64ToArray(step_bits, to);
  to = put_count(kSummary, summary, to);
  for (const TaggedNumber* one = begin; one != end; ++one) to = write(*one, to);
  frame.end();
}

std::string histogram_record(std::string_view tag, const BinCounts& counts, Step step, double wall_time) {
  tensorboard::Event event;
  event.set_wall_time(wall_time);
  event.set_step(step.value);
  tensorboard::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(std::string(tag));
  tensorboard::HistogramProto& histogram = *value.mutable_histo();
  double total = 0, sum = 0, sum_squares = 0;
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    const auto count = static_cast<double>(counts[bin]);
    const double centre = (edge(bin) + edge(bin + 1)) / 2;
    if (count > 0 && total == 0) histogram.set_min(edge(bin));
    if (count > 0) histogram.set_max(edge(bin + 1));
    total += count;
    sum += count * centre;
    sum_squares += count * centre * centre;
    histogram.add_bucket_limit(edge(bin + 1));
    histogram.add_bucket(count);
  }
  histogram.set_num(total);
  histogram.set_sum(sum);
  histogram.set_sum_squares(sum_squares);
  return record_of(event.SerializeAsString());
}

std::string file_version_record(double wall_time) {
  tensorboard::Event event;
  event.set_wall_time(wall_time);
  event.set_file_version("brain.Event:2");
  event.mutable_source_metadata()->set_writer(std::string(kEventWriter));
  return record_of(event.SerializeAsString());
}

std::string text_record(std::string_view tag, std::string_view text, Step step, double wall_time) {
  tensorboard::Event event;
  event.set_wall_time(wall_time);
  event.set_step(step.value);
  tensorboard::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(std::string(tag));
  value.mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  value.mutable_tensor()->set_dtype(kStringType);
  value.mutable_tensor()->mutable_tensor_shape();
  value.mutable_tensor()->add_string_val(std::string(text));
  return record_of(event.SerializeAsString());
}

std::string config_markdown(Revision revision, std::string_view config) {
  std::string text = "Revision " + std::to_string(revision.value) + "\n\n";
  while (!config.empty()) {
    const std::string_view line = config.substr(0, config.find('\n'));
    text += "    ";
    text += line;
    text += '\n';
    config.remove_prefix(std::min(line.size() + 1, config.size()));
  }
  return text;
}

}  // namespace gradmon
