// SPDX-License-Identifier: Apache-2.0
#include "runtime/expected_targets.h"

#include <unordered_set>

#include "hooks/squash_name.h"
#include "runtime/plan_settings.h"

namespace gradmon {
namespace {

struct Parameter {
  std::uint32_t target = 0;
  bool frozen = false;
  bool before_reduction_only = false;
};

std::vector<Parameter> parameters_of(const Config& config, const WatchedModel& model,
                                     const MatchReport& matches, NameTable& names) {
  std::vector<TargetName> listed;
  for (const WatchedParameter& one : model.parameters) listed.push_back({one.vpp_stage, one.name});
  const auto shown = record_names(listed, config.squash_name ? Squash::yes : Squash::no);
  std::unordered_set<const void*> known;
  std::vector<Parameter> parameters;
  for (const std::size_t i : matches.matched) {
    if (i >= model.parameters.size()) break;  // modules
    const WatchedParameter& one = model.parameters[i];
    if (!one.tensor.defined() || !known.insert(one.tensor.unsafeGetTensorImpl()).second) continue;
    if (one.author == Author::another) continue;
    parameters.push_back({names.intern(shown[i], one.vpp_stage), !one.tensor.requires_grad(),
                          one.author == Author::self_before_reduction});
  }
  return parameters;
}

}  // namespace

std::vector<ExpectedTarget> expected_targets(const Config& config, const WatchedModel& model,
                                             const MatchReport& matches, NameTable& names) {
  std::vector<ExpectedTarget> expected;
  const auto parameters = parameters_of(config, model, matches, names);
  const auto add = [&](Kind kind, const char* why) {
    for (const Parameter& one : parameters) {
      if (one.before_reduction_only && kind != Kind::grad_unreduced) continue;
      const bool needs_gradient = kind != Kind::param_origin && kind != Kind::param_updated;
      expected.push_back({kind, one.target, one.frozen && needs_gradient ? "frozen" : why});
    }
  };
  if (config.wg_distribution) {
    add(Kind::grad_unreduced, "no gradient");
    add(Kind::grad_reduced, "no gradient, or not updated through gradmon");
  }
  if (config.mv_distribution)
    add(Kind::exp_avg, "its optimizer keeps none, or was not stepped through gradmon");
  if (config.param_distribution) {
    add(Kind::param_origin, "not updated through gradmon");
    add(Kind::param_updated, "not updated through gradmon");
  }
  return expected;
}

TargetList foreseen_targets(const Config& config, const std::vector<TargetName>& names) {
  const MatchReport matches = match_targets(selection_of(config), names);
  const auto shown = record_names(names, config.squash_name ? Squash::yes : Squash::no);
  TargetList list;
  list.unmatched = unmatched_targets(matches);
  for (const std::size_t i : matches.matched) {
    TargetStatus& target = list.targets.emplace_back();
    const int stage = names[i].vpp_stage;
    target.name = (stage == 0 ? "" : std::to_string(stage) + ":") + shown[i];
  }
  list.counts.watched = static_cast<std::int64_t>(list.targets.size());
  list.counts.unmatched = static_cast<std::int64_t>(list.unmatched.size());
  return list;
}

std::vector<UnmatchedTarget> unmatched_targets(const MatchReport& matches) {
  std::vector<UnmatchedTarget> unmatched;
  for (const UnmatchedPattern& one : matches.unmatched)
    unmatched.push_back({one.pattern, one.nearest, one.error});
  return unmatched;
}

}  // namespace gradmon
