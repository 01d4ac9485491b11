// SPDX-License-Identifier: Apache-2.0
// A rule of the config's `alert`, shared by the config file and the writers. Standard library only; every
// folder may include it. writers/alerts/ALERTS.md has the formulas.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>

namespace gradmon {

enum class Anomaly : std::uint8_t { turbulence, nan, spike, vanish, rank_divergence };
inline constexpr std::array<const char*, 5> kAnomalyNames = {
    "AnomalyTurbulence", "AnomalyNan", "AnomalySpike", "AnomalyVanish", "AnomalyRankDivergence"};
constexpr const char* name_of(Anomaly anomaly) { return kAnomalyNames[static_cast<std::size_t>(anomaly)]; }

inline constexpr double kSpikeThreshold = 10;         // the default
inline constexpr double kDivergenceThreshold = 1e-6;  // the default
inline constexpr std::int64_t kShortestWindow = 16;
inline constexpr std::int64_t kLongestWindow = 256;
inline constexpr std::size_t kMostAlertRules = 8;  // in one config

struct AlertRule {
  Anomaly anomaly = Anomaly::nan;
  std::optional<double> threshold{};  // turbulence: relative excess, always set; nan: largest magnitude;
                                      // spike: robust z-score; rank_divergence: relative difference
  std::int64_t window = 64;           // spike, vanish: number of values in the median
  double fraction = 1e-3;             // vanish: a norm below this fraction of the median is low
  std::int64_t steps = 3;             // vanish: consecutive collected steps with a low norm

  auto tied() const { return std::tie(anomaly, threshold, window, fraction, steps); }
};

}  // namespace gradmon
