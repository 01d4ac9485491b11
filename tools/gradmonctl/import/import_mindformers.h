// SPDX-License-Identifier: Apache-2.0
// What the monitoring keys of a MindSpore Transformers file become. Pure.
//
// Source: "训练指标监控" of MindSpore Transformers' documentation (sections
// monitor_config, tensorboard, callbacks).
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/gradmonctl/import/import_yaml.h"

namespace gradmon {

struct ImportedKey {
  YamlPlace place;
  std::string value;    // as JSON
  std::string becomes;  // for people
};

struct Imported {
  std::string config;  // gradmon's, as JSON text
  std::vector<ImportedKey> keys;
};

// All errors, or a config that is valid.
tl::expected<Imported, std::vector<YamlError>> import_mindformers(const std::string& yaml);

}  // namespace gradmon
