// SPDX-License-Identifier: Apache-2.0
#include "control/config/json_text.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <sstream>

#include "tests/control/config/scratch_directory.h"
#include "tests/support/catch.h"
#include "tests/support/scale.h"

namespace gradmon {
namespace {

bool simdjson_accepts(const std::string& text) {
  simdjson::dom::parser parser(kMaxJsonBytes);
  return parser.parse(simdjson::padded_string(text)).error() == simdjson::SUCCESS;
}

JsonScalar value_of(const std::string& text) {
  const JsonText json(text);
  REQUIRE_FALSE(json.fault);
  return json.scalar(0);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::istringstream stream(text);
  std::vector<std::string> parts;
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// Makes one random change, after which the text is nearly JSON.
void mutate(std::string& text, std::mt19937& random) {
  static const std::vector<std::string> pieces = split(
      R"({|}|[|]|,|:|"|\|\u00e9|\ud83d\ude00|\ud83d|0|-|1e400|1e-400|.5|5.|01|1E+2|-0|NaN|nul|true|null|//x|'| )"
      "|\n|\t|\x01|\x7f|\xFF|\xC3\xA9|\xC0\x80|\xED\xA0\x80|\xF4\x90\x80\x80|18446744073709551615|"
      "18446744073709551616|-9223372036854775808|-9223372036854775809|1.7976931348623157e308|"
      "1.7976931348623159e308|0e99999999999",
      '|');
  const auto at = random() % (text.size() + 1);
  const auto& piece = pieces[random() % pieces.size()];
  switch (random() % 4) {
    case 0:
      text.erase(at, random() % 3);
      break;
    case 1:
      text.replace(at, random() % 3, piece);
      break;
    default:
      text.insert(at, piece);
  }
}

}  // namespace

TEST_CASE("simdjson accepts the same documents, but for numbers beyond 64 bits") {
  const std::vector<std::string> seeds{
      R"({"a": [1, -2.5e3, true, null], "b": {"c": "d\u0041\n", "e": {}}, "f": []})",
      "[0, 0.0, -0, 1e5]",
      "\"text\"",
      "{}",
      "  [ ]  ",
      "7"};
  std::mt19937 random(1);
  int accepted = 0;
  const int rounds = full_scale() ? 1'000'000 : 100'000;
  for (int i = 0; i < rounds; ++i) {
    auto text = seeds[random() % seeds.size()];
    for (auto n = random() % 3 + 1; n > 0; --n) mutate(text, random);
    if (text.compare(0, 3, kByteOrderMark) == 0) continue;
    const JsonText json(text);
    const bool ours = !json.fault;
    accepted += ours ? 1 : 0;
    const bool theirs = simdjson_accepts(text);
    const auto oversized = [&](const JsonNode& node) {
      return node.kind == JsonKind::number &&
             !simdjson_accepts(text.substr(node.value.begin, node.value.end - node.value.begin));
    };
    const bool allowed = ours && std::any_of(json.nodes.begin(), json.nodes.end(), oversized);
    if (ours != theirs && !allowed)
      FAIL("not agreed on: " << text << (ours ? " (we accept)" : " (we refuse)"));
  }
  CHECK(accepted > rounds / 50);
}

TEST_CASE("a value is read at its place") {
  CHECK(value_of("true") == JsonScalar(true));
  CHECK(value_of("null") == JsonScalar());
  CHECK(value_of("[1]") == JsonScalar());
  CHECK(value_of(" -7 ") == JsonScalar(std::int64_t{-7}));
  CHECK(value_of("18446744073709551615") == JsonScalar(std::numeric_limits<std::uint64_t>::max()));
  CHECK(value_of("-9223372036854775808") == JsonScalar(std::numeric_limits<std::int64_t>::min()));
  CHECK(value_of("1.5e3") == JsonScalar(1500.0));
  for (const char* tiny : {"1e-400", "0e99999999999"}) CHECK(value_of(tiny) == JsonScalar(0.0));
}

TEST_CASE("a number beyond 64 bits has the nearest double or an infinity as its value") {
  CHECK(value_of("18446744073709551616") == JsonScalar(18446744073709551616.0));
  CHECK(value_of("-9223372036854775809") == JsonScalar(-9223372036854775808.0));
  CHECK(value_of("1" + std::string(30, '0')) == JsonScalar(1e30));
  const std::string long_integer = "1" + std::string(400, '0');
  for (const std::string& large :
       {std::string("1e400"), std::string("1.5E+999999999999999999999"), long_integer}) {
    CHECK(value_of(large) == JsonScalar(HUGE_VAL));
    CHECK(value_of("-" + large) == JsonScalar(-HUGE_VAL));
  }
}

TEST_CASE("spans are the bytes of keys and values") {
  const std::string text = "\xEF\xBB\xBF{ \"a\" : [ 1 , {\"b\":null} ],\r\n\"c\":\"d\" }";
  const JsonText json(text);
  REQUIRE_FALSE(json.fault);
  REQUIRE(json.nodes.size() == 6);
  CHECK(json.key_literal(1) == "\"a\"");
  CHECK(json.literal(1) == "[ 1 , {\"b\":null} ]");
  CHECK(json.literal(2) == "1");
  CHECK(json.literal(4) == "null");
  CHECK(json.literal(5) == "\"d\"");
  CHECK(json.pointer_to(4) == "/a/1/b");
  CHECK(json.find("/a/1/b") == 4);
  CHECK_FALSE(json.find("/a/2").has_value());
  CHECK(json.place_of(json.nodes[5].key.begin).line == 2);
  CHECK(json.place_of(json.nodes[1].key.begin).column == 3);
}

TEST_CASE("pointers are escaped as RFC 6901 says") {
  CHECK(JsonText(R"({"a/b~c": 1})").pointer_to(1) == "/a~1b~0c");
  CHECK(split_pointer("/a~1b~0c") == std::vector<std::string>{"a/b~c"});
  CHECK(split_pointer("") == std::vector<std::string>{});
  CHECK_FALSE(split_pointer("a").has_value());
  CHECK_FALSE(split_pointer("/a~2").has_value());
}

TEST_CASE("a string is unchanged after encoding and decoding") {
  for (const std::string text : {"", "plain", "\"\\/\b\f\n\r\t", "\x01\x1f", "\xC3\xA9\xF0\x9F\x98\x80"})
    CHECK(value_of(encode_string(text)) == JsonScalar(text));
  CHECK(value_of(R"("\ud83d\ude00\u00e9\u20ac")") ==
        JsonScalar(std::string("\xF0\x9F\x98\x80\xC3\xA9\xE2\x82\xAC")));
}

}  // namespace gradmon
