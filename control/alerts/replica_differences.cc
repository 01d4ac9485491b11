// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/replica_differences.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>

#include "control/alert_rule.h"
#include "control/text/alert_words.h"
#include "control/vocabulary.h"

namespace gradmon {
namespace {

constexpr std::size_t kMostRanksNamed = 8;  // of the ranks with one value

// For each element of `of`, its row of the target; null: it has none.
using RowsOfTarget = std::vector<const ReplicaRow*>;

std::string number(double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::string task_of(Kind kind) { return kind == Kind::grad_reduced ? "post_grad" : name_of(kind); }

const double* value_of(const ReplicaRow& row, std::int64_t op) {
  const auto found = std::find_if(row.values.begin(), row.values.end(),
                                  [op](const ReplicaValue& value) { return value.op == op; });
  return found == row.values.end() ? nullptr : &found->value;
}

struct Widest {
  double difference = 0;
  std::size_t of = 0;  // the element that differs
  std::int64_t op = 0;
};

// The largest difference between the first element's row and any other row.
Widest widest_in(const RowsOfTarget& rows) {
  Widest widest;
  for (const ReplicaValue& reference : rows.front()->values) {
    for (std::size_t i = 1; i < rows.size(); ++i) {
      const double* const value = rows[i] == nullptr ? nullptr : value_of(*rows[i], reference.op);
      if (value == nullptr) continue;
      const double difference = replica_difference(reference.value, *value);
      if (difference > widest.difference) widest = {difference, i, reference.op};
    }
  }
  return widest;
}

// "rank 1 has 2.5, ranks 0, 2, 3 have 1.25"; the most different rank first.
std::string comparison_text(const Widest& widest, const std::vector<EqualRanks>& of,
                            const RowsOfTarget& rows) {
  std::vector<std::size_t> order{widest.of};
  for (std::size_t i = 0; i < of.size(); ++i) {
    if (i != widest.of && rows[i] != nullptr && value_of(*rows[i], widest.op) != nullptr) order.push_back(i);
  }
  std::string text;
  for (const std::size_t i : order) {
    text += (text.empty() ? "" : ", ") + names_of_replicas(of[i].ranks) +
            (of[i].ranks.size() == 1 ? " has " : " have ") + number(*value_of(*rows[i], widest.op));
  }
  return text;
}

DifferingTarget describe(const std::string& target, const ReplicaRequest& request, const Widest& widest,
                         const std::vector<EqualRanks>& of, const RowsOfTarget& rows) {
  DifferingTarget found{target, Rank{of[widest.of].ranks.front()}, {}};
  RankAlert& alert = found.alert;
  alert.rank = found.rank;
  alert.rule = name_of(Anomaly::rank_divergence);
  alert.step = request.step;
  alert.vpp_stage = rows.front()->vpp_stage;
  alert.tag_name =
      target + "/rank" + std::to_string(found.rank.value) + "/" + task_of(static_cast<Kind>(request.kind));
  alert.op = name_of(static_cast<Op>(widest.op));
  alert.value = *value_of(*rows[widest.of], widest.op);
  alert.history_mean = *value_of(*rows.front(), widest.op);
  alert.message = "Rule " + alert.rule + " reports anomaly signal in ('" + alert.tag_name + "', '" +
                  alert.op + "') at step " + std::to_string(alert.step) + ", " +
                  comparison_text(widest, of, rows) + ", relative difference " +
                  number_text(widest.difference, 3) + ".";
  return found;
}

}  // namespace

std::string names_of_replicas(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostRanksNamed); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > kMostRanksNamed)
    text += " and " + std::to_string(ranks.size() - kMostRanksNamed) + " more";
  return text;
}

double replica_difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  const double larger = std::max(std::fabs(a), std::fabs(b));
  const double difference = std::fabs(a - b);
  return std::isfinite(difference) ? difference / larger : std::fabs(a / larger - b / larger);
}

ReplicaDifferences replica_differences(const ReplicaRequest& request, double threshold,
                                       std::vector<EqualRanks> of) {
  std::sort(of.begin(), of.end(), [](const EqualRanks& a, const EqualRanks& b) {
    return a.ranks.size() != b.ranks.size() ? a.ranks.size() > b.ranks.size()
                                            : a.ranks.front() < b.ranks.front();
  });
  std::map<std::string, RowsOfTarget> targets;
  for (std::size_t i = 0; i < of.size(); ++i) {
    for (const ReplicaRow& row : of[i].rows) {
      RowsOfTarget& rows = targets[std::to_string(row.vpp_stage) + ":" + row.name];
      rows.resize(of.size());
      rows[i] = &row;
    }
  }
  ReplicaDifferences differences;
  for (const auto& [target, rows] : targets) {
    if (rows.front() == nullptr) continue;  // The majority has no such row.
    const Widest widest = widest_in(rows);
    if (widest.difference > threshold) {
      differences.differing.push_back(describe(target, request, widest, of, rows));
    } else {
      differences.agreeing.push_back(target);
    }
  }
  return differences;
}

}  // namespace gradmon
