// SPDX-License-Identifier: Apache-2.0
#include "hooks/target_names.h"

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

}  // namespace gradmon
