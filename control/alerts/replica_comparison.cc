// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/replica_comparison.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>

#include "control/alert_rule.h"
#include "control/text/words.h"
#include "control/vocabulary.h"

namespace gradmon {
namespace {

constexpr std::size_t kMostRanksNamed = 8;  // of the ranks with one value

// A parameter whose values differ by more than the threshold.
struct DifferingTarget {
  std::string target;  // "0:fc1.weight"
  Rank rank;           // the lowest of the ranks that differ most from the majority
  Alert alert;         // of that rank
};

struct ReplicaDifferences {
  std::vector<DifferingTarget> differing;
  std::vector<std::string> agreeing;  // targets on which at least two ranks agree within the threshold
};

// For each element of `of`, its row of the target; null: it has none.
using RowsOfTarget = std::vector<const ReplicaRow*>;

std::string number(double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::string task_name(Kind kind) { return kind == Kind::grad_reduced ? "post_grad" : name_of(kind); }

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
    text += (text.empty() ? "" : ", ") + names_of_ranks(of[i].ranks, kMostRanksNamed) +
            (of[i].ranks.size() == 1 ? " has " : " have ") + number(*value_of(*rows[i], widest.op));
  }
  return text;
}

DifferingTarget describe(const std::string& target, const ReplicaRequest& request, const Widest& widest,
                         const std::vector<EqualRanks>& of, const RowsOfTarget& rows) {
  DifferingTarget found{target, Rank{of[widest.of].ranks.front()}, {}};
  Alert& alert = found.alert;
  alert.rank = found.rank;
  alert.rule = name_of(Anomaly::rank_divergence);
  alert.step = request.step;
  alert.vpp_stage = rows.front()->vpp_stage;
  alert.tag_name =
      target + "/rank" + std::to_string(found.rank.value) + "/" + task_name(static_cast<Kind>(request.kind));
  alert.op = name_of(static_cast<Op>(widest.op));
  alert.value = *value_of(*rows[widest.of], widest.op);
  alert.history_mean = *value_of(*rows.front(), widest.op);
  alert.message = "Rule " + alert.rule + " reports anomaly signal in ('" + alert.tag_name + "', '" +
                  alert.op + "') at step " + std::to_string(alert.step) + ", " +
                  comparison_text(widest, of, rows) + ", relative difference " +
                  number_text(widest.difference, 3) + ".";
  return found;
}

// The majority are the ranks with the values that most ranks share; in a tie, those with the lowest rank.
// `of` must have at least two elements.
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

std::string_view nth_bucket(const std::string& buckets, std::size_t bucket) {
  return std::string_view(buckets).substr(8 * bucket, 8);
}

}  // namespace

double replica_difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  const double larger = std::max(std::fabs(a), std::fabs(b));
  const double difference = std::fabs(a - b);
  return std::isfinite(difference) ? difference / larger : std::fabs(a / larger - b / larger);
}

// A rank is in one group at a time. Forgets a group without ranks.
ReplicaComparison::Group* ReplicaComparison::find_group(Rank rank, const ReplicaDigests& message) {
  if (message.group_size < 2 || message.group_size > world_size_) return nullptr;
  const auto [known, first] = group_of_rank_.try_emplace(rank.value, message.group);
  if (!first && known->second != message.group) {
    const auto before = groups_.find(known->second);
    before->second.members.erase(rank.value);
    if (before->second.members.empty()) groups_.erase(before);
    known->second = message.group;
  }
  Group& group = groups_[message.group];
  if (group.members.empty()) group.size = message.group_size;
  group.members.insert(rank.value);
  return group.size == message.group_size ? &group : nullptr;
}

ReplicaComparison::Actions ReplicaComparison::on_digests(Rank rank, const ReplicaDigests& message, Time now) {
  Actions actions;
  Group* const group = find_group(rank, message);
  if (group == nullptr) return actions;
  for (const ReplicaDigest& digest : message.digests) add_digest(rank, digest, now, *group, actions);
  return actions;
}

void ReplicaComparison::add_digest(Rank rank, const ReplicaDigest& digest, Time now, Group& group,
                                   Actions& actions) {
  const Key key{digest.revision.value, digest.step, digest.kind};
  if (group.forgotten && key <= *group.forgotten) return;
  const auto [at, first] = group.entries.try_emplace(key);
  Entry& entry = at->second;
  if (first) entry.begun = now;
  if (entry.decided || !entry.heard.insert(rank.value).second) return;
  const auto same = std::find_if(entry.distinct.begin(), entry.distinct.end(),
                                 [&](const Distinct& one) { return one.buckets == digest.buckets; });
  if (same != entry.distinct.end()) {
    same->ranks.push_back(rank.value);
  } else if (entry.distinct.size() < kMostDistinct) {
    entry.distinct.push_back({digest.buckets, {rank.value}});
  }
  if (entry.heard.size() >= static_cast<std::size_t>(group.size)) decide(key, entry, group, now, actions);
  if (group.entries.size() > kMostSteps) forget_oldest(group, now, actions);
}

void ReplicaComparison::forget_oldest(Group& group, Time now, Actions& actions) {
  const auto oldest = group.entries.begin();
  if (!oldest->second.decided) decide(oldest->first, oldest->second, group, now, actions);
  // Its requests are answered soon: keeps the entry until then, or until room is short.
  if (!oldest->second.open.empty() && group.entries.size() <= 2 * kMostSteps) return;
  counts_.unresolved += oldest->second.open.size();
  group.forgotten = oldest->first;
  group.entries.erase(oldest);
}

// Compares the digests that have arrived, and asks for the values of the buckets that differ.
void ReplicaComparison::decide(const Key& key, Entry& entry, Group& group, Time now, Actions& actions) {
  entry.decided = true;
  if (!group.newest || *group.newest < key) {
    group.newest = key;
    group.heard = entry.heard;
  }
  if (entry.heard.size() < static_cast<std::size_t>(group.size)) ++counts_.incomplete;
  if (entry.heard.size() < 2) return;
  ++counts_.compared;
  group.compared = true;
  last_step_ = std::max(last_step_, std::get<1>(key));
  for (const std::size_t bucket : differing_buckets(key, entry, group)) {
    std::map<std::string_view, std::vector<int>> classes;
    for (const Distinct& one : entry.distinct) {
      auto& ranks = classes[nth_bucket(one.buckets, bucket)];
      ranks.insert(ranks.end(), one.ranks.begin(), one.ranks.end());
    }
    Question& question = entry.open.emplace_back(Question{bucket, {}});
    for (auto& [hash, ranks] : classes) {
      std::sort(ranks.begin(), ranks.end());
      actions.requests.emplace_back(
          Rank{ranks.front()},
          ReplicaRequest{
              {std::get<0>(key)}, std::get<1>(key), std::get<2>(key), static_cast<std::int64_t>(bucket)});
      question.asked.push_back({{std::move(ranks), {}}, false});
    }
  }
  entry.asked = now;
  entry.distinct.clear();
}

// At most kMostBuckets, those without a known divergence first. An agreeing bucket has no diverging target.
std::vector<std::size_t> ReplicaComparison::differing_buckets(const Key& key, const Entry& entry,
                                                              Group& group) const {
  std::vector<std::size_t> unknown;
  std::vector<std::size_t> known;
  for (std::size_t bucket = 0; bucket < kReplicaBuckets; ++bucket) {
    const std::string_view first = nth_bucket(entry.distinct.front().buckets, bucket);
    const bool agrees = std::all_of(entry.distinct.begin(), entry.distinct.end(), [&](const Distinct& one) {
      return nth_bucket(one.buckets, bucket) == first;
    });
    const std::pair place{std::get<2>(key), bucket};
    if (agrees) {
      group.diverging.erase(place);
    } else {
      (group.diverging.count(place) == 0 ? unknown : known).push_back(bucket);
    }
  }
  unknown.insert(unknown.end(), known.begin(), known.end());
  unknown.resize(std::min(unknown.size(), kMostBuckets));
  return unknown;
}

ReplicaComparison::Actions ReplicaComparison::on_values(Rank rank, const ReplicaValues& message) {
  Actions actions;
  const auto of_rank = group_of_rank_.find(rank.value);
  if (of_rank == group_of_rank_.end() || of_rank->second != message.group) return actions;
  Group& group = groups_[message.group];
  const ReplicaRequest& request = message.request;
  const auto entry = group.entries.find({request.revision.value, request.step, request.kind});
  if (entry == group.entries.end()) return actions;
  auto& open = entry->second.open;
  const auto question = std::find_if(open.begin(), open.end(), [&](const Question& one) {
    return static_cast<std::int64_t>(one.bucket) == request.bucket;
  });
  if (question == open.end()) return actions;
  for (Asked& asked : question->asked) {
    if (asked.equal.ranks.front() != rank.value || asked.answered) continue;
    asked.answered = true;
    asked.equal.rows = message.rows;
    entry->second.threshold = std::max(entry->second.threshold, message.threshold);
  }
  const bool complete = std::all_of(question->asked.begin(), question->asked.end(),
                                    [](const Asked& asked) { return asked.answered; });
  if (!complete) return actions;
  resolve(entry->first, *question, entry->second, group, actions);
  open.erase(question);
  return actions;
}

void ReplicaComparison::resolve(const Key& key, const Question& question, Entry& entry, Group& group,
                                Actions& actions) {
  std::vector<EqualRanks> told;
  for (const Asked& asked : question.asked) {
    if (!asked.equal.rows.empty()) told.push_back(asked.equal);
  }
  if (told.size() < 2) {
    ++counts_.unresolved;
    return;
  }
  const ReplicaRequest request{
      {std::get<0>(key)}, std::get<1>(key), std::get<2>(key), static_cast<std::int64_t>(question.bucket)};
  ReplicaDifferences found = replica_differences(request, entry.threshold, std::move(told));
  auto& known = group.diverging[{request.kind, question.bucket}];
  for (const std::string& target : found.agreeing) known.erase(target);
  for (DifferingTarget& one : found.differing) {
    if (known.size() >= kMostReplicaRows || !known.insert(one.target).second) continue;
    const auto same = std::find_if(actions.alerts.begin(), actions.alerts.end(),
                                   [&](const auto& report) { return report.first == one.rank; });
    auto& report =
        same != actions.alerts.end() ? *same : actions.alerts.emplace_back(one.rank, AlertReport{});
    if (entry.alerts++ < kMostAlerts) {
      report.second.alerts.push_back(std::move(one.alert));
    } else {
      ++report.second.left_out;
    }
  }
  if (known.empty()) group.diverging.erase({request.kind, question.bucket});
}

ReplicaComparison::Actions ReplicaComparison::tick(Time now) {
  Actions actions;
  for (auto& [id, group] : groups_) {
    for (auto& [key, entry] : group.entries) {
      if (!entry.decided && now - entry.begun >= kWaitForRanks) decide(key, entry, group, now, actions);
      if (entry.open.empty() || now - entry.asked < kWaitForValues) continue;
      for (const Question& question : entry.open) resolve(key, question, entry, group, actions);
      entry.open.clear();
    }
  }
  return actions;
}

ReplicasCompared ReplicaComparison::summary() const {
  ReplicasCompared summary;
  summary.last_step = last_step_;
  summary.comparisons = counts_.compared;
  summary.incomplete = counts_.incomplete;
  summary.unresolved = counts_.unresolved;
  const auto note = [&summary](const std::vector<int>& ranks, const std::string& why) {
    if (ranks.empty() || summary.not_compared.size() == ReplicasCompared::kMostNotCompared) return;
    summary.not_compared.push_back(names_of_ranks(ranks, kMostRanksNamed) + ": " + why);
  };
  for (const auto& [id, group] : groups_) {
    summary.groups += group.compared ? 1 : 0;
    summary.ranks += static_cast<std::int64_t>(group.members.size());
    if (!group.newest || static_cast<std::int64_t>(group.heard.size()) >= group.size) continue;
    const std::string step = " at step " + std::to_string(std::get<1>(*group.newest));
    std::vector<int> missing;
    std::set_difference(group.members.begin(), group.members.end(), group.heard.begin(), group.heard.end(),
                        std::back_inserter(missing));
    note(missing, "no values of replicas" + step);
    if (group.heard.size() == 1)
      note({*group.heard.begin()}, "no other of the " + std::to_string(group.size) +
                                       " ranks with the same values has sent them" + step);
  }
  note(silent_ranks(), "no values of replicas so far");
  return summary;
}

std::vector<int> ReplicaComparison::silent_ranks() const {
  std::vector<int> silent;
  for (std::int64_t rank = 0; rank < world_size_; ++rank) {
    if (group_of_rank_.count(static_cast<int>(rank)) == 0) silent.push_back(static_cast<int>(rank));
  }
  return silent;
}

std::size_t ReplicaComparison::steps_kept() const {
  std::size_t steps = 0;
  for (const auto& [id, group] : groups_) steps += group.entries.size();
  return steps;
}

}  // namespace gradmon
