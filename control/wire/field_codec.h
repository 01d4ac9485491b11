// SPDX-License-Identifier: Apache-2.0
// The protobuf encoding of a value that numbers its own fields, so that a field has one line for its
// declaration and one for its number. `Value` has
//
//   template <typename Self, typename Visit>
//   static void each_field(Self& self, Visit visit) { visit(1, self.epoch); visit(2, self.ranks); }
//
// or a FieldTable has it, which a declaration `FieldTable<At<1, &Value::epoch>> fields(const Value*);` names,
// or a specialisation of NumberedFields. That may also check the value:
//
//   static const char* check(Value& value);  // after decoding: null, or the reason why it is invalid
//
// A field is a number, bool, enum, duration, text, Rank, Revision, Step, another such value, an optional,
// shared pointer, vector or map of these, or with OneOf a variant. The bytes are those of a proto3 message
// with the fields int32, int64, uint64, bool, double, bytes and message, `optional`, `repeated` (not packed),
// `map` and `oneof`: https://protobuf.dev/programming-guides/encoding. Numbers are never reused.
#pragma once

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "control/step.h"

namespace gradmon {

// True if a function `Table fields(const Value*)` is declared; it is never called.
template <typename Value, typename = void>
inline constexpr bool kHasTable = false;
template <typename Value>
inline constexpr bool kHasTable<Value, std::void_t<decltype(fields(static_cast<const Value*>(nullptr)))>> =
    true;

// The numbered fields of a Value: those of its table, its own each_field(), or that of a specialisation.
template <typename Value>
struct NumberedFields {
  template <typename Self, typename Visit>
  static void each_field([[maybe_unused]] Self& self, [[maybe_unused]] Visit visit) {
    if constexpr (kHasTable<Value>) {
      decltype(fields(static_cast<const Value*>(nullptr)))::each_field(self, visit);
    } else if constexpr (!std::is_empty_v<Value>) {
      Value::each_field(self, visit);
    }
  }
};

template <typename First, typename Second>
struct NumberedFields<std::pair<First, Second>> {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.first);
    visit(2, self.second);
  }
};

// A member and its number; several members have consecutive numbers from there on.
template <std::uint32_t kFirst, auto... kMembers>
struct At {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    std::uint32_t number = kFirst;
    (visit(number++, self.*kMembers), ...);
  }
};

template <typename... Runs>
struct FieldTable {
  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    (Runs::each_field(self, visit), ...);
  }
};

// An alternative of a variant and its number.
template <std::uint32_t kNumber, typename Value>
struct Case {
  static constexpr std::uint32_t number = kNumber;
  using Alternative = Value;
};

// The numbers of a variant, in place of a field's number.
template <typename... Cases>
struct OneOf {};

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

template <typename Field>
inline constexpr bool kIsWrapped =
    std::is_same_v<Field, Rank> || std::is_same_v<Field, Revision> || std::is_same_v<Field, Step>;

template <typename Field>
inline constexpr bool kIsMilliseconds = std::is_same_v<Field, std::chrono::milliseconds>;

inline std::uint64_t double_bits(double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

template <typename Field>
bool is_zero(const Field& field) {
  if constexpr (std::is_same_v<Field, std::string>) {
    return field.empty();
  } else if constexpr (std::is_same_v<Field, double>) {
    return double_bits(field) == 0;
  } else if constexpr (kIsWrapped<Field>) {
    return field.value == 0;
  } else if constexpr (std::is_integral_v<Field> || std::is_enum_v<Field> || kIsMilliseconds<Field>) {
    return field == Field{};
  } else {
    return false;
  }
}

template <typename Field>
void write_present(std::uint32_t number, const Field& field, std::string& to) {
  if constexpr (std::is_same_v<Field, std::string>) {
    put_bytes(number, field, to);
  } else if constexpr (std::is_same_v<Field, double>) {
    put_tag(number, WireType::fixed64, to);
    std::uint8_t buffer[8];
    google::protobuf::io::CodedOutputStream::WriteLittleEndian64ToArray(double_bits(field), buffer);
    to.append(reinterpret_cast<const char*>(buffer), sizeof buffer);
  } else if constexpr (std::is_integral_v<Field> || std::is_enum_v<Field>) {
    put_tag(number, WireType::varint, to);
    put_varint(static_cast<std::uint64_t>(field), to);
  } else if constexpr (kIsMilliseconds<Field>) {
    write_present(number, field.count(), to);
  } else if constexpr (kIsWrapped<Field>) {
    write_present(number, field.value, to);
  } else {
    put_bytes(number, field_codec::encode(field), to);
  }
}

// A zero or an empty text is written in an optional, vector or map only.
template <typename Field>
void write(std::uint32_t number, const Field& field, std::string& to) {
  if (!is_zero(field)) write_present(number, field, to);
}

template <typename Value>
void write(std::uint32_t number, const std::optional<Value>& value, std::string& to) {
  if (value) write_present(number, *value, to);
}

// An optional bool is 1 for false and 2 for true.
inline void write(std::uint32_t number, std::optional<bool> value, std::string& to) {
  if (value) write_present(number, *value ? 2 : 1, to);
}

template <typename Value>
void write(std::uint32_t number, const std::shared_ptr<const Value>& value, std::string& to) {
  if (value) write_present(number, *value, to);
}

template <typename Value>
void write(std::uint32_t number, const std::vector<Value>& values, std::string& to) {
  for (const Value& value : values) write_present(number, value, to);
}

template <typename Key, typename Value>
void write(std::uint32_t number, const std::map<Key, Value>& values, std::string& to) {
  for (const auto& [key, value] : values) {
    std::string entry;
    write_present(1, key, entry);
    write_present(2, value, entry);
    put_bytes(number, entry, to);
  }
}

struct FieldWriter {
  std::string& to;

  template <typename Field>
  void operator()(std::uint32_t number, const Field& field) const {
    write(number, field, to);
  }

  template <typename... Cases, typename Variant>
  void operator()(OneOf<Cases...>, const Variant& variant) const {
    const auto write_case = [&](auto each) {
      const auto* const value = std::get_if<typename decltype(each)::Alternative>(&variant);
      if (value != nullptr) write_present(each.number, *value, to);
    };
    (write_case(Cases{}), ...);
  }
};

template <typename Value>
std::string encode(const Value& value) {
  std::string bytes;
  NumberedFields<Value>::each_field(value, FieldWriter{bytes});
  return bytes;
}

// The reason why bytes are refused; null: they are valid.
using Refusal = const char*;
inline constexpr Refusal kNoEncoding = "not a valid encoding";
inline constexpr Refusal kUnknown = "empty or unknown";  // none of a variant's alternatives

// Messages within messages. The stack would not hold any number of them.
inline constexpr int kMostNested = 100;

// A field as read: `number` of a varint or fixed64, `bytes` of other types.
struct RawField {
  WireType type;
  std::uint64_t number = 0;
  std::string_view bytes;
  int depth = 0;  // of the message that has it
};

template <typename Value>
Refusal decode(std::string_view bytes, Value& value, int depth);

// Skips a field of another wire type than expected, as protobuf does. A number too large for an enum becomes
// the largest that the enum can hold.
template <typename Field>
Refusal read(const RawField& from, Field& field) {
  if constexpr (std::is_same_v<Field, std::string>) {
    if (from.type == WireType::bytes) field = from.bytes;
  } else if constexpr (std::is_same_v<Field, double>) {
    if (from.type == WireType::fixed64) std::memcpy(&field, &from.number, sizeof field);
  } else if constexpr (std::is_same_v<Field, bool>) {
    if (from.type == WireType::varint) field = from.number != 0;
  } else if constexpr (std::is_integral_v<Field> || kIsMilliseconds<Field>) {
    if (from.type == WireType::varint) field = static_cast<Field>(from.number);
  } else if constexpr (std::is_enum_v<Field>) {
    constexpr std::uint64_t most = std::numeric_limits<std::underlying_type_t<Field>>::max();
    if (from.type == WireType::varint) field = static_cast<Field>(std::min(from.number, most));
  } else if constexpr (kIsWrapped<Field>) {
    return read(from, field.value);
  } else {
    if (from.type == WireType::bytes) return decode(from.bytes, field, from.depth + 1);
  }
  return nullptr;
}

template <typename Value>
Refusal read(const RawField& from, std::optional<Value>& value) {
  return read(from, value ? *value : value.emplace());
}

inline Refusal read(const RawField& from, std::optional<bool>& value) {
  if (from.type == WireType::varint && from.number != 0) value = from.number > 1;
  return nullptr;
}

template <typename Value>
Refusal read(const RawField& from, std::shared_ptr<const Value>& value) {
  auto read_value = std::make_shared<Value>();
  const Refusal refusal = read(from, *read_value);
  value = std::move(read_value);
  return refusal;
}

template <typename Value>
Refusal read(const RawField& from, std::vector<Value>& values) {
  constexpr auto expected = std::is_integral_v<Value> ? WireType::varint : WireType::bytes;
  return from.type == expected ? read(from, values.emplace_back()) : nullptr;
}

template <typename Key, typename Value>
Refusal read(const RawField& from, std::map<Key, Value>& values) {
  std::pair<Key, Value> entry;
  const Refusal refusal = read(from, entry);
  values.insert_or_assign(entry.first, std::move(entry.second));
  return refusal;
}

// The next field, and its number; none at the end or where the encoding is invalid.
struct NextField {
  std::uint32_t number = 0;
  RawField field;
};
std::optional<NextField> next_field(std::string_view& bytes);

// The progress of decoding one message.
struct Decoded {
  Refusal refusal = nullptr;
  bool undecided = false;  // no alternative of its variant has been read
};

struct FieldClearer {
  Decoded& decoded;

  template <typename Field>
  void operator()(std::uint32_t, Field& field) const {
    field = {};
  }

  template <typename... Cases, typename Variant>
  void operator()(OneOf<Cases...>, Variant&) const {
    decoded.undecided = true;
  }
};

// Reads the next field if it is the visited one.
struct FieldReader {
  const NextField& next;
  Decoded& decoded;

  template <typename Field>
  void operator()(std::uint32_t number, Field& field) const {
    if (number == next.number) decoded.refusal = read(next.field, field);
  }

  template <typename... Cases, typename Variant>
  void operator()(OneOf<Cases...>, Variant& variant) const {
    const auto read_case = [&](auto each) {
      if (each.number != next.number || next.field.type != WireType::bytes) return;
      using Alternative = typename decltype(each)::Alternative;
      auto& value = variant.template emplace<Alternative>();
      decoded = {decode(next.field.bytes, value, next.field.depth + 1), false};
    };
    (read_case(Cases{}), ...);
  }
};

template <typename Fields, typename Value, typename = void>
inline constexpr bool kHasCheck = false;
template <typename Fields, typename Value>
inline constexpr bool kHasCheck<Fields, Value, decltype(void(Fields::check(std::declval<Value&>())))> = true;

// A field missing in `bytes` becomes zero, empty or unset, regardless of its default.
template <typename Value>
Refusal decode(std::string_view bytes, Value& value, int depth) {
  using Fields = NumberedFields<Value>;
  if (depth > kMostNested) return kNoEncoding;
  Decoded decoded;
  Fields::each_field(value, FieldClearer{decoded});
  while (auto next = next_field(bytes)) {
    next->field.depth = depth;
    Fields::each_field(value, FieldReader{*next, decoded});
    if (decoded.refusal != nullptr) return decoded.refusal;
  }
  if (!bytes.empty()) return kNoEncoding;
  if (decoded.undecided) return kUnknown;
  if constexpr (kHasCheck<Fields, Value>) return Fields::check(value);
  return nullptr;
}

}  // namespace field_codec

}  // namespace gradmon
