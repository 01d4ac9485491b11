// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/target_names.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <unordered_set>

namespace gradmon {
namespace {

constexpr std::string_view kWrappers[] = {"_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"};

bool is_wrapper(std::string_view part) {
  return std::find(std::begin(kWrappers), std::end(kWrappers), part) != std::end(kWrappers);
}

template <typename Drop>
std::string without_parts(std::string_view name, Drop drop) {
  std::string kept;
  bool first = true;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (!drop(part)) {
      if (!first) kept += '.';
      kept += part;
      first = false;
    }
    begin = end + 1;
  }
  return kept;
}

// Position of the rightmost match of any of `starts`, without its dot, as the greedy regex `^.*\.(` finds
// it; npos if none matches.
std::size_t last_part(std::string_view name, std::initializer_list<std::string_view> starts) {
  std::size_t last = std::string_view::npos;
  for (const std::string_view start : starts) {
    const std::size_t dot = name.rfind(start);
    if (dot != std::string_view::npos && (last == std::string_view::npos || dot + 1 > last)) last = dot + 1;
  }
  return last;
}

// Length of the leading `{vpp}:` (number of the model chunk); 0 if there is none.
std::size_t stage_length(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  return digits > 0 && digits < text.size() && text[digits] == ':' ? digits + 1 : 0;
}

bool is_child(std::string_view name, std::string_view child) {
  return name.substr(0, child.size()) == child && (name.size() == child.size() || name[child.size()] == '.');
}

}  // namespace

std::string unwrapped_name(std::string_view name) { return without_parts(name, is_wrapper); }

std::string plain_name(std::string_view name) {
  return without_parts(
      name, [](std::string_view part) { return part.empty() || part == "module" || is_wrapper(part); });
}

std::string plain_target(std::string_view target) {
  const std::size_t stage = stage_length(target);
  return std::string(target.substr(0, stage)) + plain_name(target.substr(stage));
}

std::string_view without_stage(std::string_view target) { return target.substr(stage_length(target)); }

std::string squashed_name(std::string_view name) {
  const std::initializer_list<std::string_view> patterns[] = {
      {".layer.", ".layers."}, {".embedding.", ".embeddings."}, {".final"}, {".output"}, {".norm"}};
  for (const auto& starts : patterns) {
    const std::size_t begin = last_part(name, starts);
    if (begin != std::string_view::npos) return std::string(name.substr(begin));
  }
  return std::string(name);
}

std::string root_name(const std::vector<TargetName>& names) {
  for (const std::string_view root : {"model", "root"}) {
    const bool taken = std::any_of(names.begin(), names.end(), [&](const TargetName& name) {
      return is_child(unwrapped_name(name.name), root);
    });
    if (!taken) return std::string(root);
  }
  return {};
}

std::vector<std::string> record_names(const std::vector<TargetName>& names, Squash squash) {
  std::vector<std::string> full, squashed;
  for (const TargetName& name : names)
    full.push_back(name.root_name.empty() ? unwrapped_name(name.name) : name.root_name);
  if (squash == Squash::no) return full;

  std::unordered_set<std::string> used;
  for (std::size_t i = 0; i < names.size(); ++i) {
    // With the leading dot, `layers.0.norm` is squashed like `decoder.layers.0.norm`: at `layers`.
    std::string name = squashed_name("." + full[i]);
    const bool has_short_form = name.front() != '.';
    if (!has_short_form) name.erase(0, 1);
    const bool deep = std::count(name.begin(), name.end(), '.') > 1;
    if (!has_short_form && deep && !names[i].module) return full;
    if (!used.insert(std::to_string(names[i].vpp_stage) + ':' + name).second) return full;
    squashed.push_back(std::move(name));
  }
  return squashed;
}

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
  if (model.names) return model.names->targets;
  std::vector<TargetName> names = parameter_names(model);
  for (TargetName& module : module_names(model.modules)) {
    if (!module.name.empty()) names.push_back(std::move(module));
  }
  return names;
}

std::shared_ptr<const RowNames> row_names(const WatchedModel& model, Squash squash) {
  if (model.names) return squash == Squash::yes ? model.names->squashed : model.names->full;
  std::vector<TargetName> names = parameter_names(model);
  for (TargetName& module : module_names(model.modules)) names.push_back(std::move(module));
  std::vector<std::string> recorded = record_names(names, squash);
  const auto first_module = recorded.begin() + static_cast<std::ptrdiff_t>(model.parameters.size());
  std::vector<std::string> modules(std::make_move_iterator(first_module),
                                   std::make_move_iterator(recorded.end()));
  recorded.erase(first_module, recorded.end());
  return std::make_shared<const RowNames>(RowNames{std::move(recorded), std::move(modules)});
}

void keep_names(WatchedModel& model) {
  model.names.reset();
  model.names = std::make_shared<const ModelNames>(
      ModelNames{target_names(model), row_names(model, Squash::no), row_names(model, Squash::yes)});
}

std::vector<std::size_t> distinct_parameters(const WatchedModel& model, const std::vector<bool>& selected) {
  std::map<std::pair<const void*, std::int64_t>, std::size_t> chosen;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const WatchedParameter& parameter = model.parameters[i];
    if (!parameter.tensor->defined()) continue;
    // One tensor may hold several parameters (FSDP1).
    const ParameterSharding* sharding = parameter.sharding.get();
    const bool in_flat = sharding != nullptr && sharding->run && sharding->unsharded_run;
    const std::int64_t place = in_flat ? sharding->unsharded_run->begin : -1;
    const auto [known, fresh] = chosen.try_emplace({parameter.tensor->unsafeGetTensorImpl(), place}, i);
    if (!fresh && selected[i] && !selected[known->second]) known->second = i;
  }
  std::vector<std::size_t> distinct;
  for (const auto& [tensor, i] : chosen) distinct.push_back(i);
  std::sort(distinct.begin(), distinct.end());
  return distinct;
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

MatrixIndex::MatrixIndex(const WatchedModel& model) {
  for (const WatchedParameter& parameter : model.parameters) {
    if (parameter.tensor->defined() && parameter.tensor->dim() == 2)
      matrices_.emplace(std::pair(parameter.vpp_stage, parameter.name), &parameter);
  }
}

const WatchedParameter* MatrixIndex::of(const TargetName& module) const {
  const std::string start = module.name.empty() ? "" : module.name + ".";
  for (const char* own : {"weight", "wg"}) {
    const auto matrix = matrices_.find({module.vpp_stage, start + own});
    if (matrix != matrices_.end()) return matrix->second;
  }
  return nullptr;
}

}  // namespace gradmon
