// SPDX-License-Identifier: Apache-2.0
// Translates the monitoring keys of a MindSpore Transformers file into a config. Pure.
//
// Source: "训练指标监控" of MindSpore Transformers' documentation (sections
// monitor_config, tensorboard, callbacks).
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/gradmonctl/config/import_yaml.h"

namespace gradmon {

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
