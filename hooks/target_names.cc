// SPDX-License-Identifier: Apache-2.0
#include "hooks/target_names.h"

#include <map>
#include <string>
#include <utility>

#include "hooks/squash_name.h"

namespace gradmon {

std::vector<TargetName> parameter_names(const WatchedModel& model) {
  std::vector<TargetName> names;
  for (const WatchedParameter& parameter : model.parameters)
    names.push_back({parameter.vpp_stage, parameter.name});
  return names;
}

std::vector<TargetName> module_names(const WatchedModel& model) {
  std::vector<TargetName> names;
  for (const WatchedModule& module : model.modules) names.push_back({module.vpp_stage, module.name});
  return names;
}

std::vector<TargetName> target_names(const WatchedModel& model) {
  std::vector<TargetName> names = parameter_names(model);
  for (const WatchedModule& module : model.modules) {
    if (!module.name.empty()) names.push_back({module.vpp_stage, module.name});
  }
  return names;
}

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

std::vector<WatchedModule> without_wrappers(std::vector<WatchedModule> modules) {
  std::vector<WatchedModule> kept;
  std::map<std::string, std::size_t> places;
  for (WatchedModule& module : modules) {
    const auto [place, first] = places.emplace(unwrapped_name(module.name), kept.size());
    if (first) {
      kept.push_back(std::move(module));
      continue;
    }
    WatchedModule& outside = kept[place->second];
    const bool compiled = module.name.find("_orig_mod", outside.name.size()) != std::string::npos;
    if (!compiled) outside = std::move(module);
  }
  return kept;
}

}  // namespace gradmon
