// SPDX-License-Identifier: Apache-2.0
// The protobuf encoding of a value that numbers its own fields, so that a field has one line for its
// declaration and one for its number. `Value` has
//
//   template <typename Self, typename Visit>
//   static void each_field(Self& self, Visit visit) { visit(1, self.epoch); visit(2, self.ranks); }
//
// or a specialisation of NumberedFields has it. A field is a number, bool, text, Rank, Revision, another such
// value, or an optional or vector of these. The bytes are those of a proto3 message with the fields int32,
// int64, uint64, bool, double, bytes and message: https://protobuf.dev/programming-guides/encoding. Numbers
// are never reused.
#pragma once

#include <google/protobuf/io/coded_stream.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "control/step.h"

namespace gradmon {

// The numbered fields of a Value: its own each_field(), or that of a specialisation.
template <typename Value>
struct NumberedFields {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    Value::each_field(self, visit);
  }
};

namespace field_codec {

enum class WireType : std::uint32_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

inline void put_varint(std::uint64_t value, std::string& to) {
  std::uint8_t buffer[10];
  const auto* const end = google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(value, buffer);
  to.append(reinterpret_cast<const char*>(buffer), static_cast<std::size_t>(end - buffer));
}

inline void put_tag(std::uint32_t number, WireType type, std::string& to) {
  put_varint(number << 3 | static_cast<std::uint32_t>(type), to);
}

inline void put_bytes(std::uint32_t number, std::string_view bytes, std::string& to) {
  put_tag(number, WireType::bytes, to);
  put_varint(bytes.size(), to);
  to.append(bytes);
}

template <typename Value>
std::string encode(const Value& value);

// A zero or an empty text is not written, except in a vector.
inline void write(std::uint32_t number, const std::string& text, std::string& to) {
  if (!text.empty()) put_bytes(number, text, to);
}

template <typename Field>
void write(std::uint32_t number, const Field& field, std::string& to) {
  if constexpr (std::is_same_v<Field, double>) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &field, sizeof bits);
    if (bits == 0) return;
    put_tag(number, WireType::fixed64, to);
    std::uint8_t buffer[8];
    google::protobuf::io::CodedOutputStream::WriteLittleEndian64ToArray(bits, buffer);
    to.append(reinterpret_cast<const char*>(buffer), sizeof buffer);
  } else if constexpr (std::is_integral_v<Field>) {
    if (field == 0) return;
    put_tag(number, WireType::varint, to);
    put_varint(static_cast<std::uint64_t>(field), to);
  } else if constexpr (std::is_same_v<Field, Rank> || std::is_same_v<Field, Revision>) {
    write(number, field.value, to);
  } else {
    put_bytes(number, encode(field), to);
  }
}

template <typename Value>
void write(std::uint32_t number, const std::optional<Value>& value, std::string& to) {
  if (value) write(number, *value, to);
}

template <typename Value>
void write(std::uint32_t number, const std::vector<Value>& values, std::string& to) {
  for (const Value& value : values) {
    if constexpr (std::is_same_v<Value, std::string>) {
      put_bytes(number, value, to);
    } else {
      write(number, value, to);
    }
  }
}

template <typename Value>
std::string encode(const Value& value) {
  std::string bytes;
  NumberedFields<Value>::each_field(
      value, [&](std::uint32_t number, const auto& field) { write(number, field, bytes); });
  return bytes;
}

// A field as read: `number` of a varint or fixed64, `bytes` of other types.
struct RawField {
  WireType type;
  std::uint64_t number = 0;
  std::string_view bytes;
};

template <typename Value>
bool decode(std::string_view bytes, Value& value);

// Skips a field of another wire type than expected, as protobuf does. False: not a valid encoding.
template <typename Field>
bool read(const RawField& from, Field& field) {
  if constexpr (std::is_same_v<Field, std::string>) {
    if (from.type == WireType::bytes) field = from.bytes;
  } else if constexpr (std::is_same_v<Field, double>) {
    if (from.type == WireType::fixed64) std::memcpy(&field, &from.number, sizeof field);
  } else if constexpr (std::is_same_v<Field, bool>) {
    if (from.type == WireType::varint) field = from.number != 0;
  } else if constexpr (std::is_integral_v<Field>) {
    if (from.type == WireType::varint) field = static_cast<Field>(from.number);
  } else if constexpr (std::is_same_v<Field, Rank> || std::is_same_v<Field, Revision>) {
    return read(from, field.value);
  } else {
    return from.type != WireType::bytes || decode(from.bytes, field);
  }
  return true;
}

template <typename Value>
bool read(const RawField& from, std::optional<Value>& value) {
  return read(from, value ? *value : value.emplace());
}

template <typename Value>
bool read(const RawField& from, std::vector<Value>& values) {
  return from.type != WireType::bytes || read(from, values.emplace_back());
}

// The next field, and its number; none at the end or where the encoding is invalid.
struct NextField {
  std::uint32_t number = 0;
  RawField field;
};
std::optional<NextField> next_field(std::string_view& bytes);

// A field missing in `bytes` becomes zero, empty or unset, regardless of its default.
template <typename Value>
bool decode(std::string_view bytes, Value& value) {
  NumberedFields<Value>::each_field(value, [](std::uint32_t, auto& field) { field = {}; });
  while (const auto next = next_field(bytes)) {
    bool valid = true;
    NumberedFields<Value>::each_field(value, [&](std::uint32_t number, auto& field) {
      if (number == next->number) valid = read(next->field, field);
    });
    if (!valid) return false;
  }
  return bytes.empty();
}

}  // namespace field_codec

template <typename Value>
std::string encode_fields(const Value& value) {
  return field_codec::encode(value);
}

// None if the bytes are not a valid encoding. Skips unknown fields.
template <typename Value>
std::optional<Value> decode_fields(std::string_view bytes) {
  Value value;
  if (!field_codec::decode(bytes, value)) return std::nullopt;
  return value;
}

}  // namespace gradmon
