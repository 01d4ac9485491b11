// SPDX-License-Identifier: Apache-2.0
#include "control/config/config_parser.h"

#include <simdjson.h>

#include <exception>
#include <utility>

#include "control/config/config_reader.h"

namespace gradmon {
namespace {

using Result = tl::expected<ParsedConfig, std::vector<ConfigError>>;
namespace dom = simdjson::dom;

// Appends the values in the order of JsonDocument::nodes. kMaxJsonDepth bounds the recursion.
void collect(dom::element element, std::vector<JsonScalar>& out) {
  out.emplace_back();
  const auto index = out.size() - 1;
  switch (element.type()) {
    case dom::element_type::OBJECT:
      for (const auto field : dom::object(element)) collect(field.value, out);
      break;
    case dom::element_type::ARRAY:
      for (const auto item : dom::array(element)) collect(item, out);
      break;
    case dom::element_type::STRING:
      out[index] = std::string(std::string_view(element));
      break;
    case dom::element_type::INT64:
      out[index] = std::int64_t(element);
      break;
    case dom::element_type::UINT64:
      out[index] = std::uint64_t(element);
      break;
    case dom::element_type::DOUBLE:
      out[index] = double(element);
      break;
    case dom::element_type::BOOL:
      out[index] = bool(element);
      break;
    default:
      break;
  }
}

ConfigError document_error(std::string_view text, std::string_view file, const JsonFault& fault) {
  const auto place = line_column(text, fault.offset);
  return {{std::string(file), place.line, place.column, ""}, fault.found, fault.expected};
}

Result parse(std::string_view text, std::string_view file) {
  JsonTree tree{text, locate_json(text), {}};
  const auto& document = tree.document;
  if (document.fault) return tl::unexpected(std::vector{document_error(text, file, *document.fault)});
  // simdjson refuses a text with an oversized number: replaces the number by zero.
  std::string readable(text);
  std::vector<std::pair<std::size_t, double>> oversized;
  for (std::size_t i = 0; i < document.nodes.size(); ++i) {
    const auto& [begin, end] = document.nodes[i].value;
    if (document.nodes[i].kind != JsonKind::number) continue;
    const auto value = oversized_number(text.substr(begin, end - begin));
    if (!value) continue;
    oversized.emplace_back(i, *value);
    readable.replace(begin, end - begin, std::string(end - begin - 1, ' ') + '0');
  }
  dom::parser parser(kMaxJsonBytes);
  dom::element root;
  const simdjson::padded_string body(std::string_view(readable).substr(byte_order_mark_bytes(text)));
  if (const auto error = parser.parse(body).get(root)) {
    return tl::unexpected(
        std::vector{document_error(text, file, {0, simdjson::error_message(error), "valid JSON"})});
  }
  tree.scalars.reserve(document.nodes.size());
  collect(root, tree.scalars);
  if (tree.scalars.size() != document.nodes.size()) {
    return tl::unexpected(
        std::vector{document_error(text, file, {0, "JSON that two parsers read differently", "valid JSON"})});
  }
  for (const auto& [node, value] : oversized) tree.scalars[node] = value;
  auto reading = read_config(tree, file);
  if (!reading.errors.empty()) return tl::unexpected(std::move(reading.errors));
  return ParsedConfig{std::move(reading.config), std::move(reading.warnings)};
}

std::string text_of(const ConfigPlace& place) {
  return place.file + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) + ": " +
         (place.pointer.empty() ? "" : excerpt(place.pointer) + ": ");
}

}  // namespace

Result parse_config(std::string_view text, std::string_view file_name) {
  try {
    return parse(text, file_name);
  } catch (const std::exception& exception) {
    return tl::unexpected(std::vector{document_error(text, file_name, {0, exception.what(), "valid JSON"})});
  }
}

std::string to_string(const ConfigError& error) {
  return text_of(error.place) + found_and_expected(error.found, error.expected);
}

std::string to_string(const ConfigWarning& warning) { return text_of(warning.place) + warning.text; }

std::string to_string(const std::vector<ConfigError>& errors) {
  std::string text;
  for (const auto& error : errors) text += (text.empty() ? "" : "\n") + to_string(error);
  return text;
}

}  // namespace gradmon
