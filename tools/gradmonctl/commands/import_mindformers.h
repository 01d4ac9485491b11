// SPDX-License-Identifier: Apache-2.0
// Translates the monitoring keys of a MindSpore Transformers file into a config. Pure.
//
// Source: "训练指标监控" of MindSpore Transformers' documentation (sections
// monitor_config, tensorboard, callbacks).
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradmon {

// A place in a YAML file.
struct YamlPlace {
  std::string key;         // "monitor_config.target", "callbacks[0].type"; "" for the document
  std::size_t line = 1;    // from 1
  std::size_t column = 1;  // from 1
};

// A key and its value: null, true or false, a number, a string, or a list of these. A
// mapping, and a mapping or list within a list, is stored as an empty object.
struct YamlEntry {
  YamlPlace place;
  nlohmann::json value;
};

struct YamlError {
  YamlPlace place;
  std::string text;
};

// The keys of the named sections, in the order of the file. A section is a mapping, a list of mappings, or
// null. Refuses text that is not UTF-8 or not YAML, a document that is not a mapping, a second document,
// duplicate keys, merge keys, and more than 4,096 keys and elements.
tl::expected<std::vector<YamlEntry>, YamlError> read_yaml_sections(const std::string& text,
                                                                   const std::vector<std::string>& sections);

struct ImportedKey {
  YamlPlace place;
  std::string value;    // as JSON
  std::string becomes;  // its translation, readable
};

struct Imported {
  std::string config;  // gradmon's, as JSON text
  std::vector<ImportedKey> keys;
};

// Returns a valid config, or all errors.
tl::expected<Imported, std::vector<YamlError>> import_mindformers(const std::string& yaml);

}  // namespace gradmon
