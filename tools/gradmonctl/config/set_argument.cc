// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/config/set_argument.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace gradmon {

tl::expected<std::pair<std::string, std::string>, std::string> parse_set_argument(
    const std::string& argument) {
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0) {
    return tl::make_unexpected("\"" + argument + "\" is not KEY=VALUE");
  }
  const std::string key = argument.substr(0, equals);
  const std::string value = argument.substr(equals + 1);
  if (key.front() != '/' && key.find('.') != std::string::npos) {
    std::string pointer = "/" + key;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    return tl::make_unexpected("no key has a dot: \"" + key + "\"; a key within another is written " +
                               pointer);
  }
  if (nlohmann::json::accept(value)) return std::make_pair(key, value);
  try {
    return std::make_pair(key, nlohmann::json(value).dump());
  } catch (const nlohmann::json::exception&) {
    return tl::make_unexpected("the value of " + key + " is not UTF-8");
  }
}

Argument edit_words(std::vector<std::string>& words, const std::string& help) {
  return {"EDIT", &words, help, "KEY=VALUE"};
}

std::string parse_edits(const std::vector<std::string>& words,
                        std::vector<std::pair<std::string, std::string>>& edits) {
  for (const std::string& word : words) {
    auto edit = parse_set_argument(word);
    if (!edit) return edit.error();
    edits.push_back(std::move(*edit));
  }
  return "";
}

}  // namespace gradmon
