// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/record_names.h"

namespace gradmon {

std::vector<std::string> activation_record_names(const HookSettings& settings,
                                                 const std::vector<TargetName>& modules) {
  std::vector<std::string> written;
  for (const ActivationTarget& target : settings.activations.targets) written.push_back(target.name);
  if (settings.activations.all) written.clear();
  return record_names(modules, settings.squash_name ? Squash::yes : Squash::no, written);
}

std::vector<std::string> l2_record_names(const L2Settings& settings, const std::vector<TargetName>& modules,
                                         Squash squash) {
  std::vector<std::string> written = settings.linear.value_or(std::vector<std::string>());
  for (const auto* more : {&settings.attention, &settings.router_weight, &settings.router_logit})
    written.insert(written.end(), more->begin(), more->end());
  return record_names(modules, squash, written);
}

}  // namespace gradmon
