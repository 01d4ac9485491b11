// SPDX-License-Identifier: Apache-2.0
#include "hooks/names/target_names.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "hooks/names/squash_name.h"

namespace gradmon {

std::vector<TargetName> parameter_names(const WatchedModel& model) {
  std::vector<TargetName> names;
  for (const WatchedParameter& parameter : model.parameters)
    names.push_back({parameter.vpp_stage, parameter.name});
  return names;
}

std::vector<TargetName> module_names(const std::vector<WatchedModule>& modules) {
  std::vector<TargetName> names;
  for (const WatchedModule& module : modules) names.push_back({module.vpp_stage, module.name, true});
  const std::string root = root_name(names);
  for (TargetName& module : names)
    if (unwrapped_name(module.name).empty()) module.root_name = root;
  return names;
}

std::vector<TargetName> target_names(const WatchedModel& model) {
  std::vector<TargetName> names = parameter_names(model);
  for (TargetName& module : module_names(model.modules)) {
    if (!module.name.empty()) names.push_back(std::move(module));
  }
  return names;
}

RowNames row_names(const WatchedModel& model, Squash squash) {
  std::vector<TargetName> names = parameter_names(model);
  for (TargetName& module : module_names(model.modules)) names.push_back(std::move(module));
  const std::vector<std::string> recorded = record_names(names, squash);
  const auto first_module = recorded.begin() + static_cast<std::ptrdiff_t>(model.parameters.size());
  return {{recorded.begin(), first_module}, {first_module, recorded.end()}};
}

std::vector<std::size_t> written_parameters(const WatchedModel& model,
                                            const std::vector<std::size_t>& matched) {
  std::set<std::pair<const void*, std::int64_t>> seen;
  std::vector<std::size_t> written;
  for (const std::size_t i : matched) {
    if (i >= model.parameters.size()) break;  // modules
    const WatchedParameter& parameter = model.parameters[i];
    if (!parameter.tensor->defined()) continue;
    // One tensor may hold several parameters (FSDP1).
    const ParameterSharding* sharding = parameter.sharding.get();
    const bool in_flat = sharding != nullptr && sharding->run && sharding->unsharded_run;
    const std::int64_t place = in_flat ? sharding->unsharded_run->begin : -1;
    if (!seen.emplace(parameter.tensor->unsafeGetTensorImpl(), place).second) continue;
    if (parameter.author != RowAuthor::another_rank) written.push_back(i);
  }
  return written;
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
    const bool unseen = module.within_compiled && !outside.within_compiled;
    if (!compiled && !unseen) outside = std::move(module);
  }
  return kept;
}

}  // namespace gradmon
