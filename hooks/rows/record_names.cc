// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/record_names.h"

namespace gradmon {

std::vector<std::string> activation_record_names(const HookSettings& settings,
                                                 const std::vector<TargetName>& modules) {
  std::vector<std::string> written;
  for (const ActivationTarget& target : settings.activations.targets) written.push_back(target.name);
  if (settings.activations.all) written.clear();
  return record_names(modules, settings.squash_name, written);
}

std::vector<std::string> l2_record_names(const HookSettings& settings,
                                         const std::vector<TargetName>& modules) {
  const L2Settings& l2 = *settings.l2;
  std::vector<std::string> written = l2.linear.value_or(std::vector<std::string>());
  for (const auto* more : {&l2.attention, &l2.router_weight, &l2.router_logit})
    written.insert(written.end(), more->begin(), more->end());
  return record_names(modules, settings.squash_name, written);
}

std::vector<std::string> target_record_names(const HookSettings& settings,
                                             const std::vector<TargetName>& names) {
  std::vector<TargetName> parameters, modules;
  for (const TargetName& name : names) (name.module ? modules : parameters).push_back(name);
  const auto of_parameters = record_names(parameters, settings.squash_name);
  const auto of_modules = activation_record_names(settings, modules);
  std::vector<std::string> recorded;
  auto parameter = of_parameters.begin();
  auto module = of_modules.begin();
  for (const TargetName& name : names) recorded.push_back(name.module ? *module++ : *parameter++);
  return recorded;
}

}  // namespace gradmon
