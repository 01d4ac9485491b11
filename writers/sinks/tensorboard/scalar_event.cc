// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/tensorboard/scalar_event.h"

#include <google/protobuf/io/coded_stream.h>

#include <cstring>

#include "writers/sinks/tensorboard/event.pb.h"
#include "writers/sinks/tensorboard/record_framing.h"

namespace gradmon {
namespace {

using google::protobuf::io::CodedOutputStream;
using tensorboard::Event;
using tensorboard::Summary;

enum class WireType : std::uint8_t { varint = 0, eight_bytes = 1, counted = 2, four_bytes = 5 };

// The byte before a field: one byte for a field number below 16.
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

std::size_t tag_size(const TaggedNumber& one) {
  return one.tag[0].size() + one.tag[1].size() + one.tag[2].size();
}

std::uint32_t size_of(const TaggedNumber& one) { return counted_size(tag_size(one)) + 5; }

std::uint8_t* write(const TaggedNumber& one, std::uint8_t* to) {
  to = put_count(kValue, size_of(one), to);
  to = put_count(kTag, static_cast<std::uint32_t>(tag_size(one)), to);
  for (const std::string_view part : one.tag) to = put(part, to);
  *to++ = kSimpleValue;
  return CodedOutputStream::WriteLittleEndian32ToArray(bits_of<std::uint32_t>(one.number), to);
}

}  // namespace

void append_scalar_event(std::string& out, std::int64_t step, double wall_time, const TaggedNumber* begin,
                         const TaggedNumber* end) {
  std::uint32_t summary = 0;
  for (const TaggedNumber* one = begin; one != end; ++one) summary += counted_size(size_of(*one));
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
  for (const TaggedNumber* one = begin; one != end; ++one) to = write(*one, to);
  frame.end();
}

}  // namespace gradmon
