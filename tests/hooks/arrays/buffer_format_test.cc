// SPDX-License-Identifier: Apache-2.0
#include "hooks/arrays/buffer_format.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("formats of numbers are read, in native and in standard sizes") {
  struct Case {
    const char* format;
    std::size_t bytes;
    ElementType type;
  };
  const Case cases[] = {
      {"?", 1, ElementType::boolean}, {"b", 1, ElementType::int8},       {"B", 1, ElementType::uint8},
      {"h", 2, ElementType::int16},   {"<H", 2, ElementType::uint16},    {"=i", 4, ElementType::int32},
      {"I", 4, ElementType::uint32},  {"l", 8, ElementType::int64},      {"<l", 4, ElementType::int32},
      {"=L", 4, ElementType::uint32}, {"q", 8, ElementType::int64},      {"@Q", 8, ElementType::uint64},
      {"n", 8, ElementType::int64},   {"e", 2, ElementType::float16},    {"<f", 4, ElementType::float32},
      {"d", 8, ElementType::float64}, {"Zf", 8, ElementType::complex64}, {"<Zd", 16, ElementType::complex128},
      {">b", 1, ElementType::int8},  // one byte has no order
  };
  for (const Case& one : cases) {
    CAPTURE(one.format);
    CHECK(type_of_format(one.format, one.bytes) == one.type);
  }
}

TEST_CASE("what is no number, or has another byte order or size, is refused with the format") {
  for (const char* format : {"", "g", "Zg", "O", "3s", "T{<f:x:}", "c", "P", "ff", "<", "Z", "=n", "w"}) {
    CAPTURE(format);
    const auto type = type_of_format(format, 4);
    REQUIRE(!type);
    CHECK(type.error().find('"' + std::string(format) + '"') != std::string::npos);
  }
  CHECK(type_of_format(">f", 4).error() == "format \">f\" has the other byte order");
  CHECK(type_of_format("!d", 8).error() == "format \"!d\" has the other byte order");
  CHECK(type_of_format("f", 8).error() == "elements of 8 bytes, but format \"f\"");
}

}  // namespace
}  // namespace gradmon
