// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "control/alert_rule.h"
#include "control/vocabulary.h"

namespace gradmon {

// A value of a record, and the rules that check it.
struct WatchedValue {
  std::uint8_t index;      // into Record::values
  const char* op;          // the title of its column: "norm"
  std::uint8_t anomalies;  // bit_of each Anomaly whose rules check it
};

constexpr std::uint8_t bit_of(Anomaly anomaly) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(anomaly));
}

// In the order of Record::values. AnomalyNan checks every value, except the number of samples of a scalar;
// AnomalyTurbulence checks `norm` and `mean`, AnomalySpike `norm` and the value of a scalar, AnomalyVanish
// `norm`. Any thread.
const std::vector<WatchedValue>& watched_values(Kind kind);

}  // namespace gradmon
