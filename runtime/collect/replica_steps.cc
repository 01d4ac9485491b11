// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/replica_steps.h"

#include <algorithm>
#include <exception>
#include <string>

#include "control/log.h"
#include "hooks/names/squash_name.h"
#include "hooks/names/target_names.h"

namespace gradmon {
namespace {

constexpr std::array<Kind, 3> kCompared{Kind::grad_reduced, Kind::param_origin, Kind::param_updated};

HookSettings replica_settings(const HookSettings& plan) {
  HookSettings settings;
  settings.revision = plan.revision;
  settings.reduced_gradients = plan.gradients || plan.reduced_gradients;
  settings.weights = plan.weights;
  settings.selection = plan.selection;
  settings.squash_name = plan.squash_name;
  settings.ops = plan.ops;
  settings.eps = plan.eps;
  settings.gradient_scales = plan.gradient_scales;
  return settings;
}

bool is_read_for_comparison(const WatchedParameter& parameter) {
  return parameter.replicated && parameter.author == RowAuthor::this_rank_unreduced_only;
}

// The model with the rows of those parameters only. Lists everything, so that the names stay the same.
WatchedModel replicas_in(const WatchedModel& model) {
  WatchedModel replicas = model;
  for (WatchedParameter& parameter : replicas.parameters)
    parameter.author = is_read_for_comparison(parameter) ? RowAuthor::this_rank : RowAuthor::another_rank;
  return replicas;
}

std::set<std::uint32_t> not_replicated(const WatchedModel& model, Squash squash, NameTable& names) {
  const auto in_rows = row_names(model, squash).parameters;
  std::set<std::uint32_t> targets;
  for (std::size_t i = 0; i < in_rows.size(); ++i) {
    if (!model.parameters[i].replicated)
      targets.insert(names.intern(in_rows[i], model.parameters[i].vpp_stage));
  }
  return targets;
}

}  // namespace

std::optional<AlertRule> divergence_rule_of(const Config& config) {
  const auto& rules = config.alert.rules;
  const auto found = std::find_if(rules.begin(), rules.end(), [](const AlertRule& rule) {
    return rule.anomaly == Anomaly::rank_divergence;
  });
  return found == rules.end() ? std::nullopt : std::optional(*found);
}

void ReplicaRowReader::on_records(Step step, const std::vector<Record>& records) {
  ReplicaStep found{group_, threshold_, {}};
  for (const Kind kind : kCompared) {
    ReplicaRows rows;
    std::vector<std::uint32_t> ids;
    for (const Record& record : records) {
      if (record.kind != kind || left_out_.count(record.target) != 0 || ids.size() >= kMostRows) continue;
      if (ids.empty()) rows = {{record.revision}, step.value, kind, record.mask, nullptr, {}};
      ids.push_back(record.target);
      for (const Op op : ops_in(rows.ops)) rows.values.push_back(record.values[static_cast<std::size_t>(op)]);
    }
    if (ids.empty()) continue;
    rows.targets = targets_of(kind, std::move(ids));
    found.kinds.push_back(std::move(rows));
  }
  if (!found.kinds.empty()) on_step_(std::move(found));
}

std::shared_ptr<const ReplicaTargets> ReplicaRowReader::targets_of(Kind kind,
                                                                   std::vector<std::uint32_t> ids) {
  Known& known = known_[static_cast<std::size_t>(kind)];
  if (known.targets && known.ids == ids) return known.targets;
  auto targets = std::make_shared<ReplicaTargets>();
  for (const std::uint32_t id : ids) targets->emplace_back(names_->vpp_stage(id), names_->name(id));
  known = {std::move(ids), std::move(targets)};
  return known.targets;
}

ReplicaSteps::ReplicaSteps(Context context) : context_(std::move(context)), rows_(context_.names) {}

ReplicaSteps::~ReplicaSteps() = default;

void ReplicaSteps::attach(const HookSettings& plan, const WatchedModel& model) {
  hooks_.reset();
  context_.writer.write_file(
      [reader = context_.reader,
       targets =
           not_replicated(model, plan.squash_name, *context_.names)]() -> tl::expected<void, std::string> {
        reader->leave_out(targets);
        return {};
      });
  const HookSettings settings = replica_settings(plan);
  const bool reads = std::any_of(model.parameters.begin(), model.parameters.end(), is_read_for_comparison);
  if (reads && (settings.reduced_gradients || settings.weights))
    hooks_ = std::make_unique<HookSet>(settings, replicas_in(model), rows_);
}

void ReplicaSteps::begin_step(Step step, HookSet::Collect collect) noexcept {
  step_ = step;
  rows_.clear();
  if (hooks_) hooks_->begin_step(step, collect);
}

void ReplicaSteps::before_update(const std::vector<at::Tensor>& parameters,
                                 const OptimizerState* state) noexcept {
  if (hooks_) hooks_->before_update(parameters, state);
}

void ReplicaSteps::after_update(const std::vector<at::Tensor>& parameters,
                                const OptimizerState* state) noexcept {
  if (hooks_) hooks_->after_update(parameters, state);
}

void ReplicaSteps::deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept {
  if (hooks_) hooks_->deliver_gradient(parameter, gradient);
}

void ReplicaSteps::end_step() noexcept {
  if (hooks_) hooks_->end_step();
  if (rows_.size() == 0) return;
  try {
    const auto rows = rows_.take();
    if (!rows) {
      if (!std::exchange(refusal_logged_, true))
        log_warn("AnomalyRankDivergence: the writer is behind, so that steps are not compared");
      return;
    }
    context_.writer.write_file(
        [reader = context_.reader, step = step_, rows]() -> tl::expected<void, std::string> {
          reader->on_records(step, rows->completed());
          return {};
        });
  } catch (const std::exception& error) {
    log_error(std::string("a step is not compared with other ranks: ") + error.what());
  }
}

void ReplicaSteps::drop_step() noexcept {
  if (hooks_) hooks_->end_step();
  rows_.clear();
}

std::chrono::nanoseconds ReplicaSteps::hook_time() const noexcept {
  return hooks_ ? hooks_->hook_time() : std::chrono::nanoseconds{};
}

std::optional<HookFailure> ReplicaSteps::failure() const { return hooks_ ? hooks_->failure() : std::nullopt; }

}  // namespace gradmon
