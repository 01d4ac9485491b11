// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/expected_targets.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "control/config/config_schema.h"
#include "hooks/probes/activation_probe.h"
#include "hooks/rows/target_names.h"
#include "runtime/collect/plan_settings.h"
#include "writers/queue/name_table.h"

namespace gradmon {
namespace {

using Expected = std::vector<ExpectedTarget>;
using Of = ExpectedTarget::Of;

constexpr const char* kNoGradient = "no gradient";
constexpr const char* kNoUpdate = "no watched optimizer has updated it";
constexpr const char* kNoMoment = "its optimizer keeps none, or no watched one has it";
constexpr const char* kNoAdam = "no moments of Adam yet, or no watched optimizer has them";
constexpr const char* kNoForward = "its forward was not seen: gradmon::observe";
constexpr const char* kWithinCompiled = "within compiled code, which no hook sees: gradmon.observe";

// The reason why a row of that kind may be silent.
const char* why_silent(Kind kind) {
  switch (kind) {
    case Kind::grad_unreduced:
      return kNoGradient;
    case Kind::grad_reduced:
      return "no gradient, or no watched optimizer has updated it";
    case Kind::exp_avg:
    case Kind::exp_avg_sq:
      return kNoMoment;
    case Kind::update:
    case Kind::ratio:
      return kNoAdam;
    case Kind::other:
      return "no gradient, or no momentum of its optimizer was seen";
    default:
      return kNoUpdate;
  }
}

void add_parameters(const std::vector<WatchedTensor>& parameters, Expected& expected) {
  for (const Kind kind : {Kind::grad_unreduced, Kind::grad_reduced, Kind::exp_avg, Kind::exp_avg_sq,
                          Kind::param_origin, Kind::param_updated, Kind::update, Kind::ratio, Kind::other}) {
    const bool needs_gradient = kind != Kind::param_origin && kind != Kind::param_updated;
    for (const WatchedTensor& one : parameters) {
      if ((one.readers_for(kind) & kForRows) == 0) continue;
      ExpectedTarget& target = expected.emplace_back(ExpectedTarget{kind, one.target, why_silent(kind)});
      if (kind == Kind::grad_unreduced && one.sharding && !one.sharding->no_unreduced.empty()) {
        target.why = one.sharding->no_unreduced.c_str();
        target.keeps_why = one.sharding;
      }
      if (needs_gradient && !one.tensor->requires_grad()) target.why = "frozen";
    }
  }
}

// The model's modules, by index, and the facts that decide which modules can have rows.
class Modules {
 public:
  Modules(const HookSettings& settings, const WatchedModel& model, NameTable& table)
      : table_(table),
        names_(module_names(model.modules)),
        leaves_replicas_(settings.leaves_replicas),
        matrices_(model) {
    for (const WatchedModule& module : model.modules) {
      embeds_.push_back(module.embeds);
      within_compiled_.push_back(module.within_compiled);
      const auto dot = module.name.rfind('.');
      if (!module.name.empty())
        parents_.emplace(module.vpp_stage, dot == std::string::npos ? "" : module.name.substr(0, dot));
    }
    shown_ = row_names(model, settings.squash_name)->modules;
  }

  const std::vector<TargetName>& names() const { return names_; }
  std::uint32_t activation(std::size_t i) { return table_.intern(shown_[i], names_[i].vpp_stage); }
  std::uint32_t l2(std::size_t i, const char* row) {
    return table_.intern(shown_[i] + row, names_[i].vpp_stage);
  }
  bool embeds(std::size_t i) const { return embeds_[i]; }
  bool within_compiled(std::size_t i) const { return within_compiled_[i]; }
  bool has_children(std::size_t i) const { return parents_.count({names_[i].vpp_stage, names_[i].name}) > 0; }
  // Returns true if the module has a weight matrix that this rank writes.
  bool has_matrix(std::size_t i) const {
    const WatchedParameter* matrix = matrices_.of(names_[i]);
    return matrix != nullptr && effective_author(*matrix, leaves_replicas_) == RowAuthor::this_rank;
  }

 private:
  NameTable& table_;
  std::vector<TargetName> names_;
  std::vector<bool> embeds_, within_compiled_;
  std::vector<std::string> shown_;
  std::set<std::pair<int, std::string>> parents_;
  const bool leaves_replicas_;
  const MatrixIndex matrices_;
};

void add_activations(const HookSettings& settings, Modules& modules, Expected& expected) {
  const ActivationSettings& asked = settings.activations;
  if (!asked.forward && !asked.backward) return;
  const auto choices = activation_choices(asked, settings.selection, modules.names());
  const auto is_named_itself = [&](std::size_t i) {
    return std::any_of(asked.targets.begin(), asked.targets.end(), [&](const ActivationTarget& target) {
      return is_named(target.name, modules.names()[i]);
    });
  };
  const auto add = [&](Kind kind, Side in, Side out) {
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (!choices[i][in].any && !choices[i][out].any) continue;
      if (asked.all && modules.has_children(i) && !is_named_itself(i)) continue;
      const char* const why = modules.within_compiled(i) ? kWithinCompiled : kNoForward;
      expected.push_back({kind, modules.activation(i), why, Of::module});
    }
  };
  add(Kind::actv, Side::input, Side::output);
  add(Kind::actv_grad, Side::input_grad, Side::output_grad);
}

void add_l2(const L2Settings& asked, Modules& modules, Expected& expected) {
  const auto named = [&](const std::vector<std::string>& targets) {
    return match_whole_names(targets, modules.names()).matched;
  };
  for (const std::size_t i : named(asked.attention))
    expected.push_back({Kind::attention_hook, modules.l2(i, ".attention"), kNoForward});
  std::vector<std::size_t> linear = named(asked.linear.value_or(std::vector<std::string>()));
  for (std::size_t i = 0; asked.linear && asked.linear->empty() && i < modules.names().size(); ++i) {
    if (!modules.embeds(i)) linear.push_back(i);
  }
  for (const std::size_t i : linear) {
    if (modules.has_matrix(i)) expected.push_back({Kind::linear_hook, modules.l2(i, ".linear"), kNoUpdate});
  }
  for (const std::size_t i : named(asked.router_weight)) {
    if (modules.has_matrix(i))
      expected.push_back({Kind::moe_router_weight_hook, modules.l2(i, ".router"), kNoUpdate});
  }
  for (const std::size_t i : named(asked.router_logit))
    expected.push_back({Kind::moe_router_logit_hook, modules.l2(i, ".router"), kNoForward});
}

void add_unmatched_l2(const Config& config, const std::vector<TargetName>& names,
                      std::vector<UnmatchedTarget>& unmatched) {
  if (!config.recording_l2_features) return;
  const Config::L2Targets& l2 = config.l2_targets;
  for (const auto& targets :
       {l2.attention_hook, l2.moe_router_logit_hook, l2.linear_hook.value_or(std::vector<std::string>()),
        l2.moe_router_weight_hook}) {
    for (UnmatchedTarget& one : unmatched_targets(match_whole_names(targets, names)))
      unmatched.push_back(std::move(one));
  }
}

}  // namespace

std::vector<ExpectedTarget> expected_targets(const HookSettings& settings, const WatchedModel& model,
                                             const std::vector<WatchedTensor>& parameters, NameTable& names) {
  Expected expected;
  std::optional<Modules> modules;
  if (settings.activations.forward || settings.activations.backward || settings.l2)
    modules.emplace(settings, model, names);
  if (modules) add_activations(settings, *modules, expected);
  add_parameters(parameters, expected);
  if (settings.l2) add_l2(*settings.l2, *modules, expected);
  return expected;
}

std::string never_unreduced(const std::vector<WatchedTensor>& parameters) {
  std::vector<const WatchedTensor*> never;
  for (const WatchedTensor& one : parameters) {
    if ((one.readers_for(Kind::grad_unreduced) & kForRows) == 0) continue;
    if (one.sharding && !one.sharding->no_unreduced.empty()) never.push_back(&one);
  }
  if (never.empty()) return {};
  const std::string more = never.size() > 1 ? " and " + std::to_string(never.size() - 1) + " more" : "";
  return "no rows in grad_unreduced of " + never.front()->name + more + ": " +
         never.front()->sharding->no_unreduced;
}

TargetList dry_run_target_list(const Config& config, const std::vector<TargetName>& names) {
  const MatchReport matches = match_targets(selection_of(config), names);
  const auto shown = record_names(names, config.squash_name ? Squash::yes : Squash::no);
  TargetList list;
  list.unmatched = unmatched_targets(matches);
  add_unmatched_l2(config, names, list.unmatched);
  for (const std::size_t i : matches.matched) {
    if (!collects_anything(config)) break;
    list.targets.emplace_back().name = with_stage(names[i].vpp_stage, shown[i]);
  }
  list.counts.watched = static_cast<std::int64_t>(list.targets.size());
  list.counts.unmatched = static_cast<std::int64_t>(list.unmatched.size());
  return list;
}

std::int64_t possible_matches(const Config& config, const std::vector<TargetName>& names) {
  const MatchReport matches = match_targets(selection_of(config), names);
  auto possible = static_cast<std::int64_t>(matches.matched.size());
  if (config.xy_distribution) {
    possible += std::count_if(matches.unmatched.begin(), matches.unmatched.end(),
                              [](const UnmatchedPattern& one) { return one.error.empty(); });
  }
  // Scalars beside a kind of rows of targets do not hide a misspelt target: every config of `init` has some.
  Config without_scalars = config;
  without_scalars.scalars.clear();
  const bool only_scalars = !config.scalars.empty() && !collects_anything(without_scalars);
  // Without a model, tap() passes every value, under names that are not known yet.
  const bool needs_none = names.empty() || config.cc_distribution.enable || config.recording_l2_features ||
                          config.print_struct || only_scalars;
  return needs_none ? std::max<std::int64_t>(possible, 1) : possible;
}

std::vector<UnmatchedTarget> unmatched_targets(const MatchReport& matches) {
  std::vector<UnmatchedTarget> unmatched;
  for (const UnmatchedPattern& one : matches.unmatched)
    unmatched.push_back({one.pattern, one.suggestions, one.error});
  return unmatched;
}

}  // namespace gradmon
