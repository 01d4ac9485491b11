// SPDX-License-Identifier: Apache-2.0
// The keys of some sections of a YAML file, as values; the one user of yaml-cpp.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradmon {

struct YamlPlace {
  std::string key;         // "monitor_config.target", "callbacks[0].type"; "" for the document
  std::size_t line = 1;    // from 1
  std::size_t column = 1;  // from 1
};

// A key whose value is no section: null, true or false, a number, a string, or
// a list of these. Mappings, and what is deeper in a list, are empty objects.
struct YamlEntry {
  YamlPlace place;
  nlohmann::json value;
};

struct YamlError {
  YamlPlace place;
  std::string text;
};

// The keys of the named sections, in the order of the file: a section is a
// mapping, or a list of mappings, or null. Refused: what is not UTF-8, no YAML
// or no mapping, a second document, keys given twice, merge keys, and more than 4,096 keys or elements.
tl::expected<std::vector<YamlEntry>, YamlError> read_yaml_sections(const std::string& text,
                                                                   const std::vector<std::string>& sections);

}  // namespace gradmon
