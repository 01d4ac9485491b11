// SPDX-License-Identifier: Apache-2.0
// Any config text gives a Config, or errors with a place. The parser reads every value at its place.
#include <variant>

#include "control/config/config_parser.h"
#include "tests/fuzz/promise.h"

using gradmon::fuzz::promise;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t most_bytes = 4096;
  if (size > most_bytes) return 0;
  const gradmon::JsonText json(std::string(reinterpret_cast<const char*>(data), size));
  const auto parsed = gradmon::parse_config(json, "config.json");
  promise(!json.fault || !parsed, "a text that is not JSON is refused as a config");
  if (!parsed) {
    promise(!parsed.error().empty(), "a refused config has an error");
    for (const auto& error : parsed.error()) {
      promise(error.place.line >= 1 && error.place.column >= 1, "an error has a place");
      promise(!error.found.empty() || !error.expected.empty(), "an error says what is wrong");
    }
  }
  if (json.fault) return 0;
  for (std::uint32_t node = 0; node < json.nodes.size(); ++node) {
    const auto kind = json.nodes[node].kind;
    const auto value = json.scalar(node);
    promise(std::holds_alternative<std::string>(value) == (kind == gradmon::JsonKind::string),
            "a string is one");
    promise(std::holds_alternative<bool>(value) == (kind == gradmon::JsonKind::boolean), "a boolean is one");
    promise(json.find(json.pointer_to(node)).has_value(), "the pointer to a value finds one");
  }
  return 0;
}
