// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/plan_settings.h"

#include <algorithm>
#include <utility>

#include "control/config/config_parser.h"
#include "control/config/config_schema.h"

namespace gradmon {
namespace {

constexpr std::size_t kMostKept = 2;

std::optional<TensorSelection> selection_of(const std::optional<Config::Selection>& selection) {
  if (!selection) return std::nullopt;
  return TensorSelection{selection->tuple_size, selection->index};
}

ActivationSettings to_activation_settings(const Config& config) {
  ActivationSettings settings;
  const bool one_way_twice = config.forward_only && config.backward_only;
  if (!config.xy_distribution || one_way_twice) return settings;
  settings.forward = !config.backward_only;
  settings.backward = !config.forward_only;
  settings.all = config.all_xy || config.targets.empty();
  for (const Config::Target& target : config.targets) {
    settings.targets.push_back({target.name, selection_of(target.input), selection_of(target.output),
                                selection_of(target.input_grad), selection_of(target.output_grad)});
  }
  return settings;
}

CollectiveSettings to_collective_settings(const Config& config) {
  const Config::CcDistribution& cc = config.cc_distribution;
  return {cc.enable, cc.cc_codeline, cc.cc_pre_hook, cc.cc_log_only};
}

std::optional<L2Settings> to_l2_settings(const Config& config) {
  if (!config.recording_l2_features) return std::nullopt;
  L2Settings settings;
  settings.attention = config.l2_targets.attention_hook;
  settings.linear = config.l2_targets.linear_hook;
  settings.router_weight = config.l2_targets.moe_router_weight_hook;
  settings.router_logit = config.l2_targets.moe_router_logit_hook;
  settings.order = config.sa_order;
  settings.causal = config.sa_causal;
  return settings;
}

}  // namespace

// Parses without the lock: the training thread must not wait for another plan's text.
PlanConfigs::Result PlanConfigs::of(const Plan& plan) {
  if (plan.config) return plan.config;
  {
    const std::lock_guard lock(mutex_);
    for (Entry& kept : entries_) {
      if (kept.config_sha256 != plan.config_sha256) continue;
      std::swap(kept, entries_.front());  // there are two at most
      return entries_.front().config;
    }
  }
  auto parsed = parse_config(plan.config_text, file_name_);
  const Result config = parsed ? Result(std::make_shared<const Config>(std::move(parsed->config)))
                               : tl::unexpected(to_string(parsed.error()));
  const std::lock_guard lock(mutex_);
  entries_.insert(entries_.begin(), Entry{plan.config_sha256, config});
  if (entries_.size() > kMostKept) entries_.pop_back();
  return config;
}

TargetSelection selection_of(const Config& config) {
  TargetSelection selection;
  for (const Config::Target& target : config.targets) selection.targets.push_back(target.name);
  selection.target_regex = config.target_regex;
  selection.invert = config.invert;
  return selection;
}

HookSettings to_hook_settings(const Config& config, Revision revision) {
  HookSettings settings;
  settings.revision = revision;
  settings.gradients = config.wg_distribution;
  settings.per_micro_batch = config.monitor_mbs_grad;
  settings.weights = config.param_distribution;
  settings.moments = config.mv_distribution;
  settings.momentum_agreement = config.mg_direction;
  settings.update_histograms = collects_histograms(config);
  settings.activations = to_activation_settings(config);
  settings.collectives = to_collective_settings(config);
  settings.l2 = to_l2_settings(config);
  settings.module_structure = config.print_struct;
  settings.call_stacks = config.stack_info;
  settings.selection = selection_of(config);
  settings.squash_name = config.squash_name ? Squash::yes : Squash::no;
  settings.ops = 0;
  for (const Op op : config.ops) settings.ops = static_cast<ValueMask>(settings.ops | bit_of(op));
  settings.eps = config.eps;
  settings.reuse_readings = config.reuse_readings;
  settings.sample = static_cast<std::uint32_t>(config.sample);
  return settings;
}

Layout layout_of(const Config& config, Revision revision) {
  Layout layout;
  layout.revision = revision;
  layout.ops = config.ops;
  layout.ndigits = static_cast<int>(config.ndigits);
  layout.digits = static_cast<int>(config.digits.value_or(0));
  layout.compress = config.compress == Config::Compress::zstd;
  layout.step_count_per_record = config.step_count_per_record;
  layout.micro_step_in_grad_unreduced = config.monitor_mbs_grad;
  layout.samples = config.sample > 1;
  layout.tags = config.tags == Config::Tags::msprobe ? TagForm::msprobe : TagForm::gradmon;
  return layout;
}

bool includes_rank(const Config& config, Rank rank) {
  const auto& ranks = config.module_ranks;
  return ranks.empty() || std::find(ranks.begin(), ranks.end(), rank.value) != ranks.end();
}

}  // namespace gradmon
