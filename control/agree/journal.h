// SPDX-License-Identifier: Apache-2.0
// The ranks of a job's state (`Status`) that agree, and the history of its changes (`HistoryEntry`). Values.
// The lead hub creates them; gradmonctl shows them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "control/agree/plan.h"
#include "control/step.h"
#include "gradmon/status.h"

namespace gradmon {

// A rank that has been silent for this time or longer does not agree.
inline constexpr std::int64_t kHeardWithinMs = 3'000;

// Counts all ranks, including those that the status does not list.
AgreeingRanks count_agreeing_ranks(const Status& status);

// True if the coordinator asks the rank, or will ask it once it joins.
bool is_counted(const RankStatus& rank);

struct HistoryEntry {
  Revision revision;    // 0 (null in JSON) if it was superseded before it was proposed
  std::string cause;    // start, file, ctl, resync, retry, alert or budget
  std::string by;       // "user@host pid 123", or the file
  std::string verdict;  // commit, abort, superseded, refused; "" while open
  std::string reason;
  bool on = false;  // true: it asks for on
  WallTime proposed_at = 0;
  std::int64_t effective_step = -1;
  std::map<int, std::int64_t> applied;  // rank to step
  std::int64_t finished_step = -1;      // last collected step, once all ranks have finished
  std::string request_id;               // of the command, if any
  bool final = false;                   // no retry follows
  Schedule steps;                       // of a commit: the steps that are collected
};

// The entry of a plan that waits for its verdict.
HistoryEntry history_entry(const Plan& plan, WallTime proposed_at);
void enter_verdict(HistoryEntry& entry, const Verdict& verdict);

// The history of one epoch, in the order in which changes arrived. Keeps the last 10,000, or fewer in a job
// of many ranks. One thread.
class Journal {
 public:
  using Key = std::uint64_t;  // identifies an entry; rising, never reused

  static constexpr std::size_t kMostKept = 10'000;
  // Ranks in all entries, some 16 MiB. 64 bytes of an entry's texts count as a rank.
  static constexpr std::size_t kMostApplied = std::size_t{1} << 18U;

  // Refused changes among them: repeatedly refused clients must not push out changes of the job.
  static constexpr std::size_t kMostRefused = 100;

  // Drops the oldest entries beyond these bounds; the newest two always stay.
  Key add(HistoryEntry entry);
  // Adds an entry that is already on disk; take_changed() does not return it. The bound on ranks is checked
  // by the next add().
  void restore(HistoryEntry entry);
  // Sets the first key. Call it before the first add() or restore().
  void begin_at(Key first) { next_ = first; }
  HistoryEntry* find(Key key);                                            // null: no longer kept
  HistoryEntry* find(Revision revision);                                  // null: no longer kept
  const HistoryEntry* find_request(const std::string& request_id) const;  // the newest; null: none
  // Marks an entry as changed, so that take_changed() returns it.
  void touch(Key key) { changed_.insert(key); }
  void touch(Revision revision);

  const HistoryEntry* newest() const { return entries_.empty() ? nullptr : &entries_.rbegin()->second; }
  std::vector<HistoryEntry> entries() const;
  // The entries that have changed since the last call, by key.
  std::map<Key, HistoryEntry> take_changed();

 private:
  void drop_oldest();
  void drop_oldest_refused();

  std::map<Key, HistoryEntry> entries_;
  std::set<Key> changed_;
  Key next_ = 0;
};

}  // namespace gradmon
