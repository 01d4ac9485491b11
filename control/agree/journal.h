// SPDX-License-Identifier: Apache-2.0
// The state of a job (`Status`) and the history of its changes (`HistoryEntry`). Values. The lead hub creates
// them; gradmonctl and Monitor::status() show them. each_field() numbers the fields of a Status for the wire
// (control/wire/field_codec.h): a new field needs a line there; its number must never be reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/agree/agreeing_ranks.h"
#include "control/agree/overhead.h"
#include "control/agree/schedule.h"
#include "control/agree/target_status.h"
#include "control/alerts/replicas_compared.h"
#include "control/step.h"
#include "control/wall_time.h"

namespace gradmon {

struct Plan;
struct Verdict;

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
  std::int64_t waited_ms = 0;        // current wait of its training at a fence; 0: it does not wait
  std::uint64_t records = 0;         // rows written so far
  std::uint64_t dropped = 0;
  Overhead overhead;                // of its newest plan
  TargetCounts targets;             // of its newest plan
  std::string error;                // "": none
  std::uint64_t alerts = 0;         // raised by its process so far
  std::uint64_t listed_alerts = 0;  // of these, received one by one by the lead hub
  // Flight recorder: rows that alerts have written, and lost rows that an alert or a rule needed.
  std::uint64_t flight_written = 0;
  std::uint64_t flight_lost = 0;

  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.rank);
    visit(2, self.host);
    visit(3, self.pid);
    visit(4, self.step);
    visit(5, self.revision);
    visit(6, self.applied_step);
    visit(7, self.state);
    visit(8, self.step_ms);
    visit(9, self.last_seen_ms);
    visit(10, self.last_stepped_ms);
    visit(11, self.records);
    visit(12, self.dropped);
    visit(13, self.error);
    visit(14, self.overhead);
    visit(15, self.targets);
    visit(16, self.accepted);
    visit(17, self.waited_ms);
    visit(18, self.alerts);
    visit(19, self.listed_alerts);
    visit(22, self.flight_written);
    visit(23, self.flight_lost);
  }
};

struct Pending {
  Revision revision;
  std::string reason;  // such as "waiting for rank 3"
  WallTime since = 0;

  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.revision);
    visit(2, self.reason);
    visit(3, self.since);
  }
};

struct LastError {
  WallTime at = 0;
  std::string text;
  std::uint64_t count = 0;

  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.at);
    visit(2, self.text);
    visit(3, self.count);
  }
};

struct Status {
  std::string epoch;
  std::string mode = "dynamic";      // static or dynamic
  std::string state = "off";         // off or on
  std::string reason;                // why it is off or pending: "never turned on", "finished"
  Revision revision;                 // the newest that any rank has applied; 0: none yet
  std::int64_t effective_step = -1;  // of that revision; -1: none
  std::optional<Pending> pending;
  std::int64_t collected = 0;  // steps that the lowest rank taking part has collected under this revision
  std::int64_t collect_times = 0;
  std::int64_t step_interval = 1;
  std::string launch_id;
  WallTime started = 0;
  std::string name;        // of the job, for people; "" if none was given
  std::string output_dir;  // "" if unknown
  std::string config_path;
  std::string config_sha256;  // of the plan in force, else of the file; "" if neither
  std::optional<LastError> last_error;
  std::string torch;                      // version that gradmon is built against; "" if unknown
  std::vector<std::string> hooks;         // kinds of rows that can be collected
  std::vector<std::string> warnings;      // of the config in force: unknown keys, targets without a match
  std::vector<RankStatus> ranks;          // by rank
  std::optional<AgreeingRanks> unlisted;  // counts the ranks for which `ranks` has no room; unset: none
  std::string alerts_endpoint;            // ZeroMQ PUB socket, "ipc://PATH" on the lead hub's host; "": none
  std::optional<ReplicasCompared> replicas_compared;  // unset: nothing is or was compared

  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.epoch);
    visit(2, self.mode);
    visit(3, self.state);
    visit(4, self.reason);
    visit(5, self.revision);
    visit(6, self.effective_step);
    visit(7, self.pending);
    visit(8, self.collected);
    visit(9, self.collect_times);
    visit(10, self.step_interval);
    visit(11, self.config_path);
    visit(12, self.config_sha256);
    visit(13, self.last_error);
    visit(14, self.warnings);
    visit(15, self.ranks);
    visit(17, self.torch);
    visit(18, self.hooks);
    visit(19, self.output_dir);
    visit(20, self.launch_id);
    visit(21, self.name);
    visit(22, self.started);
    visit(25, self.alerts_endpoint);
    visit(26, self.replicas_compared);
    visit(27, self.unlisted);
  }
};

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
HistoryEntry history_of(const Plan& plan, WallTime proposed_at);
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
