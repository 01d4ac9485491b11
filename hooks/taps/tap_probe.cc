// SPDX-License-Identifier: Apache-2.0
#include "hooks/taps/tap_probe.h"

#include <cstdint>
#include <optional>

namespace gradmon {
namespace {

constexpr std::uint64_t kAfterTheModels = std::uint64_t{1} << 32U;  // sequence of the first row

std::array<bool, kKinds> kinds_of(const HookSettings& settings) {
  std::array<bool, kKinds> kinds{};
  const auto set = [&](Kind kind, bool wanted) { kinds[static_cast<std::size_t>(kind)] = wanted; };
  set(Kind::actv, settings.activations.forward);
  set(Kind::actv_grad, settings.activations.backward);
  set(Kind::grad_unreduced, settings.gradients);
  set(Kind::grad_reduced, settings.gradients || settings.reduced_gradients);
  set(Kind::exp_avg, settings.moments);
  set(Kind::exp_avg_sq, settings.moments);
  set(Kind::param_origin, settings.weights);
  set(Kind::param_updated, settings.weights);
  return kinds;
}

}  // namespace

TapProbe::TapProbe(const HookSettings& settings, RecordStream& stream, HookFuse& fuse)
    : stream_(stream),
      fuse_(fuse),
      selection_(settings.selection),
      eps_(settings.eps),
      micro_steps_of_gradients_(settings.per_micro_batch),
      kinds_(kinds_of(settings)) {}

void TapProbe::begin_step(Step) {
  places_.clear();
  keys_.clear();
  readings_.clear();
  left_out_.clear();
}

bool TapProbe::selects(const std::string& name) {
  if (const auto known = selected_.find(name); known != selected_.end()) return known->second;
  const bool selected = !match_targets(selection_, {{0, name}}).matched.empty();
  if (selected_.size() < kMostNames) selected_.emplace(name, selected);
  return selected;
}

void TapProbe::tap(const TappedValue& value) {
  if (!kinds_[static_cast<std::size_t>(value.kind)] || !selects(value.name)) return;
  if (selected_.count(value.name) == 0) {
    left_out_.emplace_back(value.kind, value.name);
    return;
  }
  const bool has_micro_steps = value.kind == Kind::actv || value.kind == Kind::actv_grad ||
                               (value.kind == Kind::grad_unreduced && micro_steps_of_gradients_);
  Key key{value.kind, value.name, has_micro_steps ? value.micro_step : 0};
  const auto [place, fresh] = places_.try_emplace(key, readings_.size());
  if (fresh) {
    keys_.push_back(std::move(key));
    readings_.emplace_back();
  }
  Reading& reading = readings_[place->second];
  if (!value.why.empty()) return reading.mark_not_applicable(value.why);
  reading.read(value.tensor, eps_, value.name, fuse_);
  if (value.scope) reading.scope = value.scope;
  resolve_pending({&reading});
}

void TapProbe::write_rows(RowWriter& rows) {
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const auto& [kind, name, micro_step] = keys_[i];
    rows.write({kind, stream_.target_id(0, name), kAfterTheModels + i, micro_step}, readings_[i], name);
  }
  for (const auto& [kind, name] : left_out_)
    rows.count_not_applicable(kind, std::nullopt, name,
                              "more than " + std::to_string(kMostNames) + " names were handed in");
}

}  // namespace gradmon
