// SPDX-License-Identifier: Apache-2.0
// Any config text gives a Config, or errors with a place. simdjson and our locator accept the same JSON,
// except for our limits, a byte order mark and numbers beyond 64 bits.
#include <simdjson.h>

#include <algorithm>

#include "control/config/config_parser.h"
#include "control/config/json_locate.h"
#include "tests/fuzz/promise.h"

namespace {

using gradmon::fuzz::promise;

// Too short for more values than we allow.
constexpr std::size_t kMostBytes = 4096;

// True if brackets may be nested deeper than we allow; counts those in strings, too.
bool deep(const std::string& text) {
  std::size_t depth = 0;
  std::size_t deepest = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if ((c == ']' || c == '}') && depth > 0) --depth;
  }
  return deepest >= gradmon::kMaxJsonDepth;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > kMostBytes) return 0;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto parsed = gradmon::parse_config(text, "config.json");
  if (!parsed) {
    promise(!parsed.error().empty(), "a refused config has an error");
    for (const auto& error : parsed.error()) {
      promise(error.place.line >= 1 && error.place.column >= 1, "an error has a place");
      promise(!error.found.empty() || !error.expected.empty(), "an error says what is wrong");
    }
  }
  const bool marked = text.compare(0, gradmon::kByteOrderMark.size(), gradmon::kByteOrderMark) == 0;
  if (marked || deep(text)) return 0;
  simdjson::dom::parser parser(gradmon::kMaxJsonBytes);
  simdjson::dom::element root;
  const bool valid = parser.parse(simdjson::padded_string(text)).get(root) == simdjson::SUCCESS;
  const auto located = gradmon::locate_json(text);
  const bool oversized = std::any_of(located.nodes.begin(), located.nodes.end(), [&](const auto& node) {
    return node.kind == gradmon::JsonKind::number &&
           gradmon::oversized_number(node.value.of(text)).has_value();
  });
  promise(valid == (!located.fault && !oversized), "simdjson and the locator accept the same documents");
  promise(!located.fault || !parsed, "a text that is not JSON is refused as a config");
  return 0;
}
