// SPDX-License-Identifier: Apache-2.0
// set_value() in any text changes the bytes of the value only, and the result parses to the same JSON
// except for the value. Input: a line with the key, a line with the value, the text.
#include "control/config/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/fuzz/promise.h"

namespace {

using gradmon::fuzz::promise;
using Json = nlohmann::ordered_json;

std::string_view take_line(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('\n'), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return line;
}

Json parsed(std::string_view text) {
  if (text.substr(0, gradmon::kByteOrderMark.size()) == gradmon::kByteOrderMark) {
    text.remove_prefix(gradmon::kByteOrderMark.size());
  }
  return Json::parse(text, nullptr, false);
}

void check_bytes(std::string_view before, std::string_view after, std::string_view old_value,
                 std::string_view new_value) {
  const auto begin = static_cast<std::size_t>(old_value.data() - before.data());
  promise(after.substr(0, begin) == before.substr(0, begin), "no byte before the value changes");
  promise(after.substr(begin, new_value.size()) == new_value, "the new value is written");
  promise(after.substr(begin + new_value.size()) == before.substr(begin + old_value.size()),
          "no byte after the value changes");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string pointer = gradmon::to_pointer(take_line(text));
  const std::string_view value = take_line(text);
  const auto json = gradmon::set_value(gradmon::JsonText(std::string(text)), pointer, value);
  if (!json) {
    promise(!json.error().empty(), "a refusal says why");
    return 0;
  }
  promise(!json->fault, "the result is JSON");
  const std::string& edited = json->text;
  const auto old_value = gradmon::value_at(text, pointer);
  const gradmon::JsonText wanted{std::string(value)};
  promise(!wanted.fault, "the new value is JSON");
  const std::string_view trimmed = wanted.literal(0);
  if (old_value) check_bytes(text, edited, *old_value, trimmed);
  Json before = parsed(text);
  const Json after = parsed(edited);
  const Json asked = parsed(value);
  if (before.is_discarded() || asked.is_discarded()) return 0;
  promise(!after.is_discarded(), "nlohmann reads the result");
  promise(gradmon::value_at(edited, pointer) == trimmed, "value_at() finds the new value");
  if (!old_value) return 0;
  before[Json::json_pointer(pointer)] = asked;
  promise(before == after, "no other value changes");
  return 0;
}
