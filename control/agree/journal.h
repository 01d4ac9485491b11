// SPDX-License-Identifier: Apache-2.0
// What a job tells of itself: its present state (`Status`) and what became of
// every change (`HistoryEntry`). Values; made by rank 0, shown by gradmonctl.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/agree/overhead.h"
#include "control/agree/schedule.h"
#include "control/agree/target_status.h"
#include "control/agree/wall_time.h"
#include "control/step.h"

namespace gradmon {

struct RankStatus {
  Rank rank;
  std::string host;
  std::int64_t pid = 0;
  std::int64_t step = 0;             // the step it is in, or about to begin
  Revision revision;                 // the newest it has applied; 0: none
  std::int64_t applied_step = -1;    // where it applied that; -1: none
  std::string state = "absent";      // absent, idle, collecting, waiting, left or dropped
  double step_ms = 0;                // mean time of the last steps
  std::int64_t last_seen_ms = 0;     // age of its last message
  std::int64_t last_stepped_ms = 0;  // age of its last change of step
  Revision accepted;                 // every revision up to it is decided, as far as this rank knows
  std::int64_t waited_ms = 0;        // how long its training has stood at a fence; 0: it does not
  std::uint64_t records = 0;         // written so far
  std::uint64_t dropped = 0;
  Overhead overhead;     // of its newest plan
  TargetCounts targets;  // under it
  std::string error;     // what disturbs it, "" if nothing
};

struct Pending {
  Revision revision;
  std::string reason;  // as "waiting for rank 3"
  WallTime since = 0;
};

struct LastError {
  WallTime at = 0;
  std::string text;
  std::uint64_t count = 0;
};

struct Status {
  std::string epoch;
  std::string mode = "dynamic";      // static or dynamic
  std::string state = "off";         // off or on
  std::string reason;                // why it is off or pending: "not asked for", "finished", …
  Revision revision;                 // what rank 0 runs; 0: none yet
  std::int64_t effective_step = -1;  // of that; -1: none
  std::optional<Pending> pending;
  std::int64_t collected = 0;  // collections of this revision that lie behind rank 0
  std::int64_t collect_times = 0;
  std::int64_t step_interval = 1;
  std::string launch_id;
  WallTime started = 0;
  std::string name;        // of the job, for people; "" if none was given
  std::string output_dir;  // "" where it is not told
  std::string config_path;
  std::string config_sha256;  // of the plan in force, else of the file; "" if neither
  std::optional<LastError> last_error;
  std::string torch;                  // the version it is built against; "" if not told
  std::vector<std::string> hooks;     // the kinds of record that it can collect
  std::vector<std::string> warnings;  // of the config in force: unknown keys, targets without a match
  std::vector<RankStatus> ranks;      // by rank
};

struct HistoryEntry {
  Revision revision;    // 0 (null in JSON) until it is proposed, so for ever where superseded before
  std::string cause;    // start, file, ctl, resync, retry, alert or budget
  std::string by;       // "user@host pid 123", or the file
  std::string verdict;  // commit, abort, superseded, refused; "" while open
  std::string reason;
  bool on = false;  // what it asks for
  WallTime proposed_at = 0;
  std::int64_t effective_step = -1;
  std::map<int, std::int64_t> applied;  // rank to step
  std::int64_t finished_step = -1;      // the last step collected, once all are done
  std::string request_id;               // of the command that asked for it
  bool final = false;                   // nothing more becomes of it: no retry follows
  Schedule steps;                       // of a commit: the steps that it collects
};

// The history of one epoch, in the order in which changes arrived. Keeps the
// last 10,000. One thread.
class Journal {
 public:
  using Key = std::uint64_t;  // of an entry, rising, never reused

  Key add(HistoryEntry entry);
  // What an earlier coordinator has written down already: kept, and not handed out.
  void restore(HistoryEntry entry);
  // Keys are given from here on; before the first add() or restore().
  void begin_at(Key first) { next_ = first; }
  HistoryEntry* find(Key key);                                            // null: no longer kept
  HistoryEntry* find(Revision revision);                                  // null likewise
  const HistoryEntry* find_request(const std::string& request_id) const;  // the newest; null: none
  // Marks an entry as changed, so that take_changed() hands it out.
  void touch(Key key) { changed_.insert(key); }
  void touch(Revision revision);

  const HistoryEntry* newest() const { return entries_.empty() ? nullptr : &entries_.rbegin()->second; }
  std::vector<HistoryEntry> entries() const;
  // The entries that have changed since the last call, by key.
  std::map<Key, HistoryEntry> take_changed();

 private:
  std::map<Key, HistoryEntry> entries_;
  std::set<Key> changed_;
  Key next_ = 0;
};

}  // namespace gradmon
