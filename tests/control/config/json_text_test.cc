// SPDX-License-Identifier: Apache-2.0
#include "control/config/json_text.h"

#include <simdjson.h>

#include <algorithm>
#include <limits>
#include <random>
#include <sstream>

#include "control/config/config_parser.h"
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

namespace {

std::string edited(std::string_view text, std::string_view pointer, std::string_view value) {
  const auto out = set_value(JsonText(std::string(text)), pointer, value);
  return out ? out->text : "(error) " + out.error();
}

// Generates random JSON values with random white space.
class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}
  std::size_t below(std::size_t n) { return random_() % n; }
  std::string blank() {
    static const std::vector<std::string> blanks{"", "", " ", "\n  ", "\r\n\t", "  \n"};
    return blanks[below(blanks.size())];
  }
  std::string value(int depth) {
    static const std::vector<std::string> plain{"1",     "-2.5e3",        "true",        "null",
                                                "\"x\"", "\"\\u00e9{,\"", "\"\xC3\xA9\""};
    const auto kind = depth == 0 ? 0 : below(3);
    if (kind == 0) return plain[below(plain.size())];
    std::string out = kind == 1 ? "{" : "[";
    for (std::size_t i = 0, n = below(4); i < n; ++i) {
      out += (i == 0 ? "" : ",") + blank();
      if (kind == 1)
        out += "\"k" + std::to_string(i) + (below(4) == 0 ? "/~" : "") + "\"" + blank() + ":" + blank();
      out += value(depth - 1) + blank();
    }
    return out + blank() + (kind == 1 ? "}" : "]");
  }

 private:
  std::mt19937 random_;
};

TEST_CASE("an edit changes only the bytes of its value") {
  Generator generate(7);
  for (int i = 0; i < 20'000; ++i) {
    const auto text = generate.blank() + generate.value(4) + generate.blank();
    const JsonText json(text);
    REQUIRE_FALSE(json.fault);
    const auto node = static_cast<std::uint32_t>(generate.below(json.nodes.size()));
    if (node == 0) continue;
    const auto pointer = json.pointer_to(node);
    const auto value = generate.value(2);
    const auto span = json.nodes[node].value;
    INFO(text << " at " << pointer);
    const auto out = edited(text, pointer, value);
    REQUIRE(out == text.substr(0, span.begin) + value + text.substr(span.end));
    REQUIRE(value_at(out, pointer) == std::string_view(value));
    REQUIRE_FALSE(JsonText(out).fault);
  }
}

TEST_CASE("a missing key is inserted first and the rest is unchanged") {
  Generator generate(8);
  for (int i = 0; i < 20'000; ++i) {
    const auto text = generate.blank() + "{" + generate.blank() +
                      (generate.below(2) == 0 ? "" : "\"a\":" + generate.value(3)) + generate.blank() + "}" +
                      generate.blank();
    INFO(text);
    const auto out = edited(text, "/new~1key/deep", "[1]");
    REQUIRE_FALSE(JsonText(out).fault);
    REQUIRE(value_at(out, "/new~1key/deep") == std::string_view("[1]"));
    REQUIRE(value_at(out, "/a") == value_at(text, "/a"));
    const auto brace = text.find('{') + 1;
    const auto tail = text.size() - brace;
    REQUIRE(out.substr(0, brace) == text.substr(0, brace));
    REQUIRE(out.substr(out.size() - tail).find(text.substr(text.find_first_not_of(" \t\r\n", brace))) !=
            std::string::npos);
  }
}

TEST_CASE("an inserted key has the layout of the first member") {
  CHECK(edited("{\n    \"a\": 1\n}\n", "/b", "true") == "{\n    \"b\": true,\n    \"a\": 1\n}\n");
  CHECK(edited("\xEF\xBB\xBF{\r\n\t\"a\": 1\r\n}", "/b", "2") ==
        "\xEF\xBB\xBF{\r\n\t\"b\": 2,\r\n\t\"a\": 1\r\n}");
  CHECK(edited("{\"a\":1}", "/b", "2") == "{\"b\": 2, \"a\":1}");
  CHECK(edited("{ \"a\": 1 }", "/b", "2") == "{ \"b\": 2, \"a\": 1 }");
  CHECK(edited("{}", "/b", "2") == "{\"b\": 2}");
  CHECK(edited("{\n}\n", "/b", "2") == "{\n  \"b\": 2\n}\n");
  CHECK(edited("{\r\n}", "/b", "2") == "{\r\n  \"b\": 2\r\n}");
  CHECK(edited("{\n  \"a\": {\n  }\n}", "/a/b", "2") == "{\n  \"a\": {\n    \"b\": 2\n  }\n}");
  CHECK(edited("{}", "/alert/dump", "true") == "{\"alert\": {\"dump\": true}}");
}

TEST_CASE("a refused edit says why") {
  CHECK(edited("{\"a\": 1,}", "/a", "2") ==
        "(error) 1:8: found a comma before \"}\", expected no trailing comma");
  CHECK(edited("{\"a\": 1}", "/a", "tru") ==
        "(error) the value is not valid JSON: 1:1: found \"tru\", expected a value");
  CHECK(edited("{\"a\": 1}", "/a/b", "2") == "(error) there is no \"b\" in /a");
  CHECK(edited("{\"a\": [1]}", "/a/1", "2") == "(error) there is no \"1\" in /a");
  CHECK(edited("{\"a\": 1, \"a\": 2}", "/a", "2") == "(error) duplicate key /a");
  CHECK(edited("{}", "", "2") == "(error) \"\" is not a JSON pointer");
  CHECK(edited("{}", "/a\xFF", "2").rfind("(error) the result would not be valid JSON: 1:", 0) == 0);
  const auto depth = kMaxJsonDepth - 1;
  CHECK(edited("{\"a\": 1}", "/a", std::string(depth, '[') + std::string(depth, ']')).front() == '{');
  CHECK(edited("{\"a\": [1]}", "/a/0", std::string(depth, '[') + std::string(depth, ']'))
            .rfind("(error) the result would not be valid JSON: 1:", 0) == 0);
}

TEST_CASE("a key may be given by name or as a JSON pointer") {
  CHECK(to_pointer("eps") == "/eps");
  CHECK(to_pointer("/alert/dump") == "/alert/dump");
  CHECK(to_pointer("a/b~c") == "/a~1b~0c");
}

Config captured(const std::string& text) {
  const auto overlaid = capture_config(text);
  REQUIRE(overlaid);
  auto parsed = parse_config(*overlaid, "c.json");
  REQUIRE(parsed);
  return parsed->config;
}

TEST_CASE("a capture's config has the keys of collect, and the other keys of the config") {
  const Config config = captured(R"({
    "targets": {"fc1": {"input": "tensor"}},
    "format": "sqlite",
    "wg_distribution": true,
    "ops": ["norm"],
    "alert": {"rules": [{"rule_name": "AnomalyNan"}]},
    "on_alert": {"collect": {"ops": ["norm", "nans"], "targets": {}, "xy_distribution": true,
                             "scalars": {"a\u002fb~\n": "log"}}, "times": 3}
  })");
  CHECK(config.targets.empty());
  CHECK(config.format == std::vector<Config::Format>{Config::Format::sqlite});
  CHECK((config.wg_distribution && config.xy_distribution));
  CHECK(config.ops == std::vector<Op>{Op::norm, Op::nans});
  CHECK(config.alert.rules.size() == 1);
  REQUIRE(config.scalars.size() == 1);
  CHECK(config.scalars[0].name == "a/b~\n");
  REQUIRE(config.on_alert);
  CHECK(config.on_alert->times == 3);
}

TEST_CASE("an empty collect changes nothing") {
  const std::string text = R"({"eps": 1e-3, "on_alert": {"collect": {}}})";
  CHECK(capture_config(text) == text);
}

TEST_CASE("collect may have as many keys as a config, unknown ones too") {
  std::string text = R"({"eps": 1e-3, "on_alert": {"collect": {"eps": 1e-4)";
  for (int i = 0; i < 30'000; ++i) text += ", \"k" + std::to_string(i) + "\": 1";
  text += "}, \"times\": 3}, \"ndigits\": 7}";
  const Config config = captured(text);
  CHECK(config.eps == 1e-4);
  CHECK(config.ndigits == 7);
  REQUIRE(config.on_alert);
  CHECK(config.on_alert->times == 3);
}

TEST_CASE("a capture's config beyond the bounds of a config is an error") {
  const auto overlaid = capture_config(R"({"on_alert": {"collect": {"scalars": {")" +
                                       std::string(600'000, 'a') + R"(": "log"}}}})");
  REQUIRE_FALSE(overlaid);
  CHECK(overlaid.error() == "with the keys of on_alert.collect: found 1200075 bytes, expected at most 1 MiB");
}

TEST_CASE("a config without collect has no capture") {
  CHECK(capture_config("{}").error() == "no on_alert.collect");
  CHECK_FALSE(capture_config(R"({"on_alert": {"times": 3}})"));
}

}  // namespace

}  // namespace gradmon
