// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "control/alerts/alert_report.h"
#include "control/alerts/replicas.h"
#include "control/step.h"
#include "gradmon/status.h"

namespace gradmon {

// abs(a − b) / max(abs(a), abs(b)). Equal values, and two NaN, have 0. A NaN beside a number, and two
// different values of which one is infinite, have infinity.
double replica_difference(double a, double b);

// Ranks that hold the same values.
struct EqualRanks {
  std::vector<int> ranks;  // ascending, not empty
  std::vector<ReplicaRow> rows;
};

// The lead hub's part of AnomalyRankDivergence: compares the values that the ranks of each group should share
// (writers/alerts/ALERTS.md has the formula). Compares digests first. If they differ, asks one rank for each
// distinct digest for its values. Bounded in memory, regardless of the ranks' messages. Pure; one thread.
class ReplicaComparison {
 public:
  using Time = std::chrono::milliseconds;  // of a steady clock

  static constexpr Time kWaitForRanks{10'000};     // after the first digest of a step
  static constexpr Time kWaitForValues{10'000};    // after the request
  static constexpr std::size_t kMostSteps = 384;   // of a group; each kind of a step counts
  static constexpr std::size_t kMostDistinct = 8;  // digests of a kind and step
  static constexpr std::size_t kMostBuckets = 4;   // requested, of a kind and step
  static constexpr std::size_t kMostAlerts = 16;   // of a kind and step

  struct Actions {
    std::vector<std::pair<Rank, ReplicaRequest>> requests;
    std::vector<std::pair<Rank, AlertReport>> alerts;  // for that rank to raise
  };
  struct Counts {
    std::uint64_t compared = 0;    // kinds of steps, with all or only some of the ranks
    std::uint64_t incomplete = 0;  // kinds of steps with missing ranks
    std::uint64_t unresolved = 0;  // differing buckets whose values did not arrive
  };

  // `world_size`: ranks of the job. Digests of a larger group are dropped.
  explicit ReplicaComparison(int world_size) : world_size_(world_size) {}

  // `message`: valid by is_valid(). Late, repeated and unexpected messages have no effect.
  Actions on_digests(Rank rank, const ReplicaDigests& message, Time now);
  Actions on_values(Rank rank, const ReplicaValues& message);
  // Ends the waits that have lasted too long. Inspects all kept steps: call it a few times a second.
  Actions tick(Time now);

  const Counts& counts() const { return counts_; }
  // For the status of the job. A rank without a group has sent nothing.
  ReplicasCompared summary() const;
  std::size_t steps_kept() const;  // for tests

 private:
  using Key = std::tuple<std::uint64_t, std::int64_t, std::int64_t>;  // revision, step, kind
  struct Distinct {
    std::string buckets;
    std::vector<int> ranks;
  };
  // Ranks with the same hash of a bucket, and so with the same values. The first one is asked.
  struct Asked {
    EqualRanks equal;
    bool answered = false;
  };
  struct Question {
    std::size_t bucket = 0;
    std::vector<Asked> asked;
  };
  struct Entry {
    Time begun{};
    Time asked{};
    bool decided = false;
    double threshold = 0;
    std::set<int> heard;
    std::vector<Distinct> distinct;
    std::vector<Question> open;
    std::size_t alerts = 0;
  };
  struct Group {
    std::int64_t size = 0;
    std::set<int> members;  // ranks that have sent digests
    // The newest kind of a step that was compared, or could not be: its step, and the ranks with digests.
    std::optional<Key> newest;
    std::set<int> heard;
    bool compared = false;  // at least once
    std::map<Key, Entry> entries;
    std::optional<Key> forgotten;  // entries up to this one
    // By kind and bucket: targets that have raised an alert and have not agreed since.
    std::map<std::pair<std::int64_t, std::size_t>, std::set<std::string>> diverging;
  };

  Group* find_group(Rank rank, const ReplicaDigests& message);
  void add_digest(Rank rank, const ReplicaDigest& digest, Time now, Group& group, Actions& actions);
  void decide(const Key& key, Entry& entry, Group& group, Time now, Actions& actions);
  std::vector<std::size_t> differing_buckets(const Key& key, const Entry& entry, Group& group) const;
  std::vector<int> silent_ranks() const;
  void forget_oldest(Group& group, Time now, Actions& actions);
  void resolve(const Key& key, const Question& question, Entry& entry, Group& group, Actions& actions);

  const std::int64_t world_size_;
  std::map<std::uint64_t, Group> groups_;
  std::map<int, std::uint64_t> group_of_rank_;
  Counts counts_;
  std::int64_t last_step_ = -1;  // the newest step compared
};

}  // namespace gradmon
