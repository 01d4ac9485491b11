// SPDX-License-Identifier: Apache-2.0
#include "runtime/scalars/scalar_board.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace gradmon {
namespace {

struct NormScalar {
  std::string_view name;
  NormOf of;
  Kind kind;
};
constexpr std::array kNormScalars = {
    NormScalar{"grad-norm", NormOf::all_parameters, Kind::grad_reduced},
    NormScalar{"device_local_norm", NormOf::all_parameters, Kind::grad_unreduced},
    NormScalar{"weight_norm", NormOf::all_parameters, Kind::param_updated},
    NormScalar{"local_norm", NormOf::each_parameter, Kind::grad_unreduced},
    NormScalar{"adam_m_norm", NormOf::each_parameter, Kind::exp_avg},
    NormScalar{"adam_v_norm", NormOf::each_parameter, Kind::exp_avg_sq},
};
constexpr std::string_view kExpertLoad = "expert_load";

const NormScalar* norm_scalar(std::string_view name) {
  const auto* const found = std::find_if(kNormScalars.begin(), kNormScalars.end(),
                                         [name](const NormScalar& scalar) { return scalar.name == name; });
  return found == kNormScalars.end() ? nullptr : found;
}

}  // namespace

ScalarBoard::ScalarBoard(Settings settings, Names names)
    : settings_(std::move(settings)),
      names_(std::move(names)),
      had_value_(settings_.requested.size(), false),
      comes_late_(settings_.requested.size(), false),
      known_(settings_.requested.size(), true),
      came_late_(settings_.requested.size(), false),
      awaited_(settings_.requested.size(), false),
      reported_(settings_.requested.size()) {
  for (const Config::Scalar& scalar : settings_.requested) {
    index_by_name_.emplace(scalar.name, ids_.size());
    ids_.push_back(names_.intern(scalar.name));
  }
}

KindSet ScalarBoard::kinds(NormOf of) const {
  KindSet kinds = 0;
  for (const NormScalar& scalar : kNormScalars) {
    if (scalar.of == of && index_by_name_.count(scalar.name) != 0) kinds |= bit_of(scalar.kind);
  }
  return kinds;
}

void ScalarBoard::begin_step(TimePoint now, std::int64_t samples) {
  began_ = now;
  samples_before_ = samples;
  std::fill(reported_.begin(), reported_.end(), std::nullopt);
  local_loss_sum_.reset();
  norms_.clear();
  squares_.clear();
  partial_ = 0;
  experts_.clear();
}

void ScalarBoard::report(std::string_view name, double value) {
  if (const auto place = index_by_name_.find(name); place != index_by_name_.end())
    reported_[place->second] = value;
  if (name == "local_loss") local_loss_sum_ = local_loss_sum_.value_or(0) + value;
}

void ScalarBoard::count_experts(std::string_view layer, const std::vector<std::int64_t>& tokens) {
  if (index_by_name_.count(kExpertLoad) == 0) return;
  auto counts = experts_.find(layer);
  if (counts == experts_.end()) counts = experts_.emplace(layer, tokens.size()).first;
  counts->second.resize(std::max(counts->second.size(), tokens.size()));
  for (std::size_t i = 0; i < tokens.size(); ++i) counts->second[i] += tokens[i];
}

void ScalarBoard::take_norm(NormOf of, Kind kind, std::uint32_t parameter, double norm) {
  if ((kinds(of) & bit_of(kind)) == 0) return;
  if (of == NormOf::all_parameters) {
    squares_[kind] += norm * norm;
  } else {
    norms_.push_back({kind, parameter, norm});
  }
}

void ScalarBoard::miss_norm(NormOf of, Kind kind) noexcept {
  if (of == NormOf::all_parameters) partial_ |= bit_of(kind);
}

void ScalarBoard::end_step(TimePoint now, std::int64_t samples) {
  rows_.clear();
  seconds_ = std::chrono::duration<double>(now - began_).count();
  samples_ = samples - samples_before_;
  for (std::size_t requested = 0; requested < settings_.requested.size(); ++requested) {
    const std::size_t before = rows_.size();
    append_rows(requested);
    const bool computed = rows_.size() > before;
    if (computed) had_value_[requested] = true;
    known_[requested] = reported_[requested].has_value();
    came_late_[requested] = false;
    awaited_[requested] = !known_[requested] && (!computed || comes_late_[requested]);
  }
}

bool ScalarBoard::awaits() const { return std::count(awaited_.begin(), awaited_.end(), true) > 0; }

bool ScalarBoard::report_late(std::string_view name, double value) {
  if (name == "local_loss" && index_by_name_.count(name) == 0) name = "device_local_loss";
  const auto place = index_by_name_.find(name);
  if (place == index_by_name_.end()) return true;
  const std::size_t requested = place->second;
  if (known_[requested]) return came_late_[requested];  // Said twice: it does not become the next step's.
  comes_late_[requested] = true;
  if (!awaited_[requested]) return true;
  const auto last = std::remove_if(rows_.begin(), rows_.end(),
                                   [=](const ScalarRow& row) { return row.requested == requested; });
  rows_.erase(last, rows_.end());
  const auto after = std::find_if(rows_.begin(), rows_.end(),
                                  [=](const ScalarRow& row) { return row.requested > requested; });
  rows_.insert(after, {requested, ids_[requested], value});
  had_value_[requested] = known_[requested] = came_late_[requested] = true;
  awaited_[requested] = false;
  return true;
}

std::vector<std::string> ScalarBoard::without_value() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < had_value_.size(); ++i) {
    if (!had_value_[i]) names.push_back(settings_.requested[i].name);
  }
  return names;
}

void ScalarBoard::append_rows(std::size_t requested) {
  const std::string& name = settings_.requested[requested].name;
  if (reported_[requested]) return add(requested, ids_[requested], *reported_[requested]);
  if (const NormScalar* norm = norm_scalar(name); norm && norm->of == NormOf::each_parameter) {
    for (const ParameterNorm& taken : norms_) {
      if (taken.kind == norm->kind) add(requested, name_of_norm(requested, taken.parameter), taken.norm);
    }
  } else if (name == kExpertLoad) {
    for (const auto& [layer, tokens] : experts_) {
      const double all = static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}));
      for (std::size_t i = 0; i < tokens.size() && all > 0; ++i) {
        const std::string expert = name + "/" + layer + "/" + std::to_string(i);
        add(requested, names_.intern(expert), static_cast<double>(tokens[i]) / all);
      }
    }
  } else if (const auto value = single_value(name)) {
    add(requested, ids_[requested], *value);
  }
}

std::optional<double> ScalarBoard::single_value(const std::string& name) const {
  if (name == "device_local_loss") return local_loss_sum_;
  if (const NormScalar* norm = norm_scalar(name)) {
    const auto squares = squares_.find(norm->kind);
    const bool whole = squares != squares_.end() && (partial_ & bit_of(norm->kind)) == 0;
    return whole ? std::optional(std::sqrt(squares->second)) : std::nullopt;
  }
  if (name == "batch-size") return samples_ > 0 ? std::optional(static_cast<double>(samples_)) : std::nullopt;
  return timed_value(name);
}

std::optional<double> ScalarBoard::timed_value(const std::string& name) const {
  if (!(seconds_ > 0)) return std::nullopt;
  if (name == "iteration-time") return seconds_;
  if (samples_ <= 0) return std::nullopt;
  const double a_second = static_cast<double>(samples_) / seconds_;
  const double throughput = a_second / settings_.devices;
  if (name == "throughput") return throughput;
  if (name == "throughput_linearity" && settings_.throughput_baseline)
    return throughput / *settings_.throughput_baseline;
  if (name == "B-samples-per-day") return a_second * 86'400 / 1e9;
  return std::nullopt;
}

void ScalarBoard::add(std::size_t requested, std::uint32_t name, double value) {
  rows_.push_back({requested, name, value});
}

std::uint32_t ScalarBoard::name_of_norm(std::size_t requested, std::uint32_t parameter) {
  const auto known = norm_names_.find({requested, parameter});
  if (known != norm_names_.end()) return known->second;
  const std::string name = settings_.requested[requested].name + "/" + names_.parameter(parameter);
  return norm_names_.emplace(std::pair(requested, parameter), names_.intern(name)).first->second;
}

}  // namespace gradmon
