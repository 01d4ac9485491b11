// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/doctor/examine_config.h"

#include "control/config/config_parser.h"
#include "tools/gradmonctl/config/config_text.h"

namespace gradmon {

using Level = Finding::Level;

Finding examine_config_file(const std::string& file, ConfigNamed named) {
  const auto text = read_config_text(file);
  if (!text) {
    const bool needed = named == ConfigNamed::by_option;
    return {needed ? Level::fail : Level::warn, "config", text.error(), "name the config file with --config"};
  }
  const auto parsed = parse_config(*text, file);
  if (!parsed) {
    return {Level::fail, "config", to_string(parsed.error()),
            "correct the file, then run gradmonctl validate " + file};
  }
  if (parsed->warnings.empty()) return {Level::ok, "config", file + ": valid", ""};
  std::string warnings;
  for (const ConfigWarning& warning : parsed->warnings)
    warnings += (warnings.empty() ? "" : "\n") + to_string(warning);
  return {Level::warn, "config", warnings, "the file is valid all the same"};
}

}  // namespace gradmon
