// SPDX-License-Identifier: Apache-2.0
#include "hooks/arrays/buffer_format.h"

#include <optional>

namespace gradmon {
namespace {

constexpr std::string_view kByteOrders = "@=<>!^";

std::optional<ElementType> integer(bool is_signed, std::size_t bytes) {
  switch (bytes) {
    case 1:
      return is_signed ? ElementType::int8 : ElementType::uint8;
    case 2:
      return is_signed ? ElementType::int16 : ElementType::uint16;
    case 4:
      return is_signed ? ElementType::int32 : ElementType::uint32;
    case 8:
      return is_signed ? ElementType::int64 : ElementType::uint64;
    default:
      return std::nullopt;
  }
}

// `native`: sizes are those of C on this machine.
std::optional<ElementType> real_type(char code, bool native) {
  switch (code) {
    case '?':
      return ElementType::boolean;
    case 'b':
    case 'B':
      return integer(code == 'b', 1);
    case 'h':
    case 'H':
      return integer(code == 'h', 2);
    case 'i':
    case 'I':
      return integer(code == 'i', 4);
    case 'l':
    case 'L':
      return integer(code == 'l', native ? sizeof(long) : 4);
    case 'q':
    case 'Q':
      return integer(code == 'q', 8);
    case 'n':
    case 'N':
      return native ? integer(code == 'n', sizeof(std::size_t)) : std::nullopt;
    case 'e':
      return ElementType::float16;
    case 'f':
      return ElementType::float32;
    case 'd':
      return ElementType::float64;
    default:
      return std::nullopt;
  }
}

std::optional<ElementType> complex_type(char code) {
  if (code == 'e') return ElementType::complex32;
  if (code == 'f') return ElementType::complex64;
  if (code == 'd') return ElementType::complex128;
  return std::nullopt;
}

}  // namespace

tl::expected<ElementType, std::string> type_of_format(std::string_view format, std::size_t item_size) {
  const std::string shown = '"' + std::string(format.substr(0, 40)) + '"';
  char order = '@';
  if (!format.empty() && kByteOrders.find(format.front()) != std::string_view::npos) {
    order = format.front();
    format.remove_prefix(1);
  }
  const bool is_complex = !format.empty() && format.front() == 'Z';
  if (is_complex) format.remove_prefix(1);
  const bool native = order == '@' || order == '^';
  const auto type = format.size() != 1 ? std::nullopt
                    : is_complex       ? complex_type(format.front())
                                       : real_type(format.front(), native);
  if (!type) return tl::unexpected("its elements of format " + shown + " are no numbers that can be read");
  if (size_of(*type) != item_size)
    return tl::unexpected("elements of " + std::to_string(item_size) + " bytes, but format " + shown);
  constexpr bool little_endian = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
  const bool foreign = little_endian ? order == '>' || order == '!' : order == '<';
  if (foreign && item_size > 1) return tl::unexpected("format " + shown + " has the other byte order");
  return *type;
}

}  // namespace gradmon
