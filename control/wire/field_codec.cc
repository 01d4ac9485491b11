// SPDX-License-Identifier: Apache-2.0
#include "control/wire/field_codec.h"

namespace gradmon::field_codec {
namespace {

// Reads the value of a field of `bytes`, which must contain it. False: not a valid encoding.
bool read_value(google::protobuf::io::CodedInputStream& in, std::string_view bytes, RawField& field) {
  std::uint32_t word = 0;
  switch (field.type) {
    case WireType::varint:
      return in.ReadVarint64(&field.number);
    case WireType::fixed64:
      return in.ReadLittleEndian64(&field.number);
    case WireType::fixed32:
      return in.ReadLittleEndian32(&word);
    case WireType::bytes: {
      if (!in.ReadVarint32(&word)) return false;
      const auto begin = static_cast<std::size_t>(in.CurrentPosition());
      if (word > bytes.size() - begin) return false;
      field.bytes = bytes.substr(begin, word);
      return in.Skip(static_cast<int>(word));
    }
  }
  return false;  // a wire type of no proto3 field
}

}  // namespace

std::optional<NextField> next_field(std::string_view& bytes) {
  if (bytes.empty() || bytes.size() > std::numeric_limits<int>::max()) return std::nullopt;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  std::uint32_t tag = 0;
  if (!in.ReadVarint32(&tag)) return std::nullopt;
  NextField next{tag >> 3, {static_cast<WireType>(tag & 7), 0, {}, 0}};
  if (next.number == 0 || !read_value(in, bytes, next.field)) return std::nullopt;
  bytes.remove_prefix(static_cast<std::size_t>(in.CurrentPosition()));
  return next;
}

}  // namespace gradmon::field_codec
