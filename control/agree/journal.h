// SPDX-License-Identifier: Apache-2.0
// The state of a job (`Status`) and the history of its changes (`HistoryEntry`). Values. The lead hub
// creates them; gradmonctl and Monitor::status() show them.
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
  Revision revision;                 // newest applied; 0: none
  std::int64_t applied_step = -1;    // first step under that revision; -1: none
  std::string state = "absent";      // absent, idle, collecting, waiting, left or dropped
  double step_ms = 0;                // mean duration of the last steps
  std::int64_t last_seen_ms = 0;     // age of its last message
  std::int64_t last_stepped_ms = 0;  // age of its last change of step
  Revision accepted;                 // this rank knows the verdicts of all revisions up to it
  std::int64_t waited_ms = 0;        // how long its training has been waiting at a fence; 0: it does not wait
  std::uint64_t records = 0;         // rows written so far
  std::uint64_t dropped = 0;
  Overhead overhead;     // of its newest plan
  TargetCounts targets;  // of its newest plan
  std::string error;     // "" if there is none
};

struct Pending {
  Revision revision;
  std::string reason;  // such as "waiting for rank 3"
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
  std::string reason;                // why it is off or pending: "not asked for", "finished"
  Revision revision;                 // in force in rank 0; 0: none yet
  std::int64_t effective_step = -1;  // of that revision; -1: none
  std::optional<Pending> pending;
  std::int64_t collected = 0;  // steps that rank 0 has collected under this revision
  std::int64_t collect_times = 0;
  std::int64_t step_interval = 1;
  std::string launch_id;
  WallTime started = 0;
  std::string name;        // of the job, for people; "" if none was given
  std::string output_dir;  // "" if unknown
  std::string config_path;
  std::string config_sha256;  // of the plan in force, else of the file; "" if neither
  std::optional<LastError> last_error;
  std::string torch;                  // version that gradmon is built against; "" if unknown
  std::vector<std::string> hooks;     // kinds of rows that can be collected
  std::vector<std::string> warnings;  // of the config in force: unknown keys, targets without a match
  std::vector<RankStatus> ranks;      // by rank
};

struct HistoryEntry {
  Revision revision;    // 0 (null in JSON) if it was superseded before it was proposed
  std::string cause;    // start, file, ctl, resync, retry, alert or budget
  std::string by;       // "user@host pid 123", or the file
  std::string verdict;  // commit, abort, superseded, refused; "" while open
  std::string reason;
  bool on = false;  // whether it asks for on or off
  WallTime proposed_at = 0;
  std::int64_t effective_step = -1;
  std::map<int, std::int64_t> applied;  // rank to step
  std::int64_t finished_step = -1;      // last collected step, once all ranks have finished
  std::string request_id;               // of the command, if there was one
  bool final = false;                   // no retry follows
  Schedule steps;                       // of a commit: which steps are collected
};

// The history of one epoch, in the order in which changes arrived. Keeps the
// last 10,000. One thread.
class Journal {
 public:
  using Key = std::uint64_t;  // identifies an entry; rising, never reused

  Key add(HistoryEntry entry);
  // Adds an entry that is already on disk; take_changed() does not return it.
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
  std::map<Key, HistoryEntry> entries_;
  std::set<Key> changed_;
  Key next_ = 0;
};

}  // namespace gradmon
