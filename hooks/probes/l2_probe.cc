// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/l2_probe.h"

#include <algorithm>
#include <iterator>

#include "hooks/rows/target_names.h"

namespace gradmon {
namespace {

constexpr std::size_t kMostFindings = std::size_t{1} << 20;  // per step

Causal mask_of(CausalMask asked, const WatchedModule& module) {
  if (asked == CausalMask::automatic) return Causal(module.causal.value_or(true));
  return Causal(asked == CausalMask::yes);
}

std::vector<std::size_t> matched(const std::vector<std::string>& targets,
                                 const std::vector<TargetName>& names,
                                 std::vector<UnmatchedPattern>& unmatched) {
  MatchReport report = match_whole_names(targets, names);
  std::move(report.unmatched.begin(), report.unmatched.end(), std::back_inserter(unmatched));
  return report.matched;
}

std::string at_call(const std::string& name, int call) {
  return call > 1 ? name + "@" + std::to_string(call) : name;
}

// The input `key` ("0" or "1"); undefined if it is missing or no tensor.
at::Tensor input(const ForwardTensors& inputs, const char* key) {
  for (const ForwardTensors::Element& element : inputs.elements) {
    if (element.key == key) return element.tensor;
  }
  return {};
}

}  // namespace

L2Probe::L2Probe(const HookSettings& settings, const WatchedModel& model, RecordStream& stream,
                 std::vector<UnmatchedPattern>& unmatched)
    : stream_(stream),
      order_(settings.l2->order),
      attention_names_(settings.l2->attention),
      limit_(kMostFindings, "rows of L2 features") {
  const L2Settings& l2 = *settings.l2;
  const std::vector<TargetName> names = module_names(model.modules);
  const auto shown = row_names(model, settings.squash_name);
  const std::vector<std::string>& recorded = shown->modules;
  for (std::size_t i = 0; i < names.size(); ++i) {
    modules_.push_back({recorded[i], names[i].vpp_stage, mask_of(l2.causal, model.modules[i])});
  }
  for (const std::size_t i : matched(l2.attention, names, unmatched)) modules_[i].attention = true;
  for (const std::size_t i : matched(l2.router_logit, names, unmatched)) modules_[i].router = true;
  find_weights(settings, model, unmatched);
}

void L2Probe::find_weights(const HookSettings& plan, const WatchedModel& model,
                           std::vector<UnmatchedPattern>& unmatched) {
  const L2Settings& settings = *plan.l2;
  const std::vector<TargetName> names = module_names(model.modules);
  std::vector<bool> linear(names.size(), false);
  for (std::size_t i = 0; settings.linear && settings.linear->empty() && i < names.size(); ++i)
    linear[i] = !model.modules[i].embeds;
  std::vector<bool> router(names.size(), false);
  std::vector<bool> listed(names.size(), false);
  for (const std::size_t i : matched(settings.linear.value_or(std::vector<std::string>()), names, unmatched))
    linear[i] = listed[i] = true;
  for (const std::size_t i : matched(settings.router_weight, names, unmatched)) router[i] = listed[i] = true;

  const MatrixIndex matrices(model);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!linear[i] && !router[i]) continue;
    const WatchedParameter* found = matrices.of(names[i]);
    if (!found) {
      if (listed[i])
        unmatched.push_back({names[i].name, {}, "the module has no 2-D parameter `weight` or `wg`"});
      continue;
    }
    if (effective_author(*found, plan.leaves_replicas) != RowAuthor::this_rank) continue;
    weights_.push_back({found->tensor, modules_[i].name, names[i].vpp_stage, linear[i], router[i],
                        WeightSpectrum(found->name)});
  }
}

void L2Probe::begin_step(Step, Readers) {
  weights_read_ = false;
  const std::lock_guard lock(mutex_);
  findings_.clear();
  reported_by_program_.clear();
}

bool L2Probe::is_reported(std::size_t module, int micro_step) {
  const std::lock_guard lock(mutex_);
  return reported_by_program_.count({module, micro_step}) > 0;
}

void L2Probe::before_forward(const ForwardVisit& visit, const ForwardTensors& inputs) {
  const Module& module = modules_[visit.module];
  if (!module.attention || visit.recomputed || is_reported(visit.module, visit.micro_step)) return;
  Finding finding;
  finding.of_inputs = visit.module;
  finding.name = at_call(module.name + ".attention", visit.call);
  finding.vpp_stage = module.vpp_stage;
  finding.micro_step = visit.micro_step;
  attention(std::move(finding), input(inputs, "0"), input(inputs, "1"), module.causal);
}

void L2Probe::abandoned(const ForwardVisit& visit) {
  const int vpp_stage = visit.vpp_stage;
  const auto of_it = [&](const Finding& finding) {
    const bool of_forwards =
        finding.kind == Kind::attention_hook || finding.kind == Kind::moe_router_logit_hook;
    return of_forwards && finding.vpp_stage == vpp_stage && finding.micro_step == visit.micro_step;
  };
  const std::lock_guard lock(mutex_);
  findings_.erase(std::remove_if(findings_.begin(), findings_.end(), of_it), findings_.end());
  for (auto call = reported_by_program_.begin(); call != reported_by_program_.end();) {
    const auto [module, micro_step] = *call;
    const bool forgotten = modules_[module].vpp_stage == vpp_stage && micro_step == visit.micro_step;
    call = forgotten ? reported_by_program_.erase(call) : std::next(call);
  }
}

void L2Probe::attended(const ForwardVisit& visit, std::string_view name, const at::Tensor& q,
                       const at::Tensor& k, Causal causal) {
  if (visit.recomputed) return;
  const bool own_name = visit.module == kNoModule;
  const bool asked = own_name ? attention_names_.empty() ||
                                    std::count(attention_names_.begin(), attention_names_.end(), name) > 0
                              : modules_[visit.module].attention;
  if (!asked) return;
  if (!own_name) {
    const std::lock_guard lock(mutex_);
    reported_by_program_.emplace(visit.module, visit.micro_step);
  }
  Finding finding;
  finding.name =
      at_call((own_name ? std::string(name) : modules_[visit.module].name) + ".attention", visit.call);
  finding.vpp_stage = own_name ? visit.vpp_stage : modules_[visit.module].vpp_stage;
  finding.micro_step = visit.micro_step;
  attention(std::move(finding), q, k, causal);
}

void L2Probe::attention(Finding finding, const at::Tensor& q, const at::Tensor& k, Causal causal) {
  keep(std::move(finding), [&](Finding& into) {
    const auto features = attention_features(q, k, order_, causal);
    if (!features) return features.error();
    into.values = {{{Column::entropy, features->entropy}, {Column::softmax_max, features->softmax_max}}};
    into.count = 2;
    into.pending = features->pending;
    return std::string();
  });
}

void L2Probe::after_forward(const ForwardVisit& visit, const ForwardTensors& outputs) {
  const Module& module = modules_[visit.module];
  if (!module.router || visit.recomputed) return;
  Finding finding;
  finding.kind = Kind::moe_router_logit_hook;
  finding.name = at_call(module.name + ".router", visit.call);
  finding.vpp_stage = module.vpp_stage;
  finding.micro_step = visit.micro_step;
  keep(std::move(finding), [&](Finding& into) {
    const auto entropy =
        router_entropy(outputs.elements.empty() ? at::Tensor() : outputs.elements.front().tensor);
    if (entropy) into.set(*entropy, Column::entropy);
    return entropy ? std::string() : entropy.error();
  });
}

void L2Probe::before_update(const Update&) {
  if (std::exchange(weights_read_, true)) return;
  for (Weight& weight : weights_) read_weight(weight);
}

void L2Probe::read_weight(Weight& weight) {
  Finding finding;
  finding.vpp_stage = weight.vpp_stage;
  if (weight.linear) {
    finding.kind = Kind::linear_hook;
    finding.name = weight.name + ".linear";
    keep(finding, [&](Finding& into) {
      const auto spectrum = weight.spectrum.measure(*weight.tensor);
      if (!spectrum) return spectrum.error();
      if (!spectrum->converged) {
        return "the largest singular value has not converged within " +
               std::to_string(WeightSpectrum::kProducts) + " products";
      }
      into.values = {{{Column::sr, spectrum->stable_rank()}, {Column::kernel_norm, spectrum->kernel_norm}}};
      into.count = 2;
      into.pending = spectrum->pending;
      return std::string();
    });
  }
  if (!weight.router) return;
  finding.kind = Kind::moe_router_weight_hook;
  finding.name = weight.name + ".router";
  keep(finding, [&](Finding& into) {
    const auto cosine = router_cosine(*weight.tensor);
    if (cosine) into.set(*cosine, Column::cosine);
    return cosine ? std::string() : cosine.error();
  });
}

void L2Probe::Finding::set(const RouterFeature& feature, Column column) {
  values[0] = {column, feature.value};
  count = 1;
  pending = feature.pending;
}

template <typename Read>
void L2Probe::keep(Finding finding, Read&& read) {
  {
    const std::lock_guard lock(mutex_);
    if (limit_.reached(findings_.size())) return;
  }
  finding.read_at = reading_time();
  try {
    finding.why = read(finding);
  } catch (const std::exception& error) {
    finding.why = first_line(error.what());
  }
  const std::lock_guard lock(mutex_);
  findings_.push_back(std::move(finding));
}

void L2Probe::write_rows(RowWriter& rows) {
  const std::lock_guard lock(mutex_);
  std::uint64_t sequence = 0;
  for (const Finding& finding : findings_) {
    if (reported_by_program_.count({finding.of_inputs, finding.micro_step}) > 0) continue;
    const std::uint32_t target = stream_.target_id(finding.vpp_stage, finding.name);
    if (finding.count == 0) {
      rows.count_not_applicable(finding.kind, target, finding.name, finding.why);
      continue;
    }
    const RowKey key{finding.kind, target, sequence++, finding.micro_step, finding.read_at};
    if (finding.count == 1) {
      rows.write(key, {finding.values[0]}, finding.pending, finding.name);
    } else {
      rows.write(key, {finding.values[0], finding.values[1]}, finding.pending, finding.name);
    }
  }
}

}  // namespace gradmon
