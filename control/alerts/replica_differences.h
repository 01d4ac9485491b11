// SPDX-License-Identifier: Apache-2.0
// Compares the values of a bucket that several ranks have sent. Pure.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/alerts/alert_report.h"
#include "control/alerts/replica_message.h"
#include "control/step.h"

namespace gradmon {

// abs(a − b) / max(abs(a), abs(b)). Equal values, and two NaN, have 0. A NaN beside a number, and two
// different values of which one is infinite, have infinity.
double replica_difference(double a, double b);

// Ranks that hold the same values.
struct EqualRanks {
  std::vector<int> ranks;  // ascending, not empty
  std::vector<ReplicaRow> rows;
};

// A parameter whose values differ by more than the threshold.
struct DifferingTarget {
  std::string target;  // "0:fc1.weight"
  Rank rank;           // the lowest of the ranks that differ most from the majority
  RankAlert alert;     // of that rank
};

// "rank 1", "ranks 0, 2, 3"; of more than 8, the first 8 and the number of the others.
std::string names_of_replicas(const std::vector<int>& ranks);

struct ReplicaDifferences {
  std::vector<DifferingTarget> differing;
  std::vector<std::string> agreeing;  // targets on which at least two ranks agree within the threshold
};

// The majority are the ranks with the values that most ranks share; in a tie, those with the lowest rank.
// `of` must have at least two elements.
ReplicaDifferences replica_differences(const ReplicaRequest& request, double threshold,
                                       std::vector<EqualRanks> of);

}  // namespace gradmon
