// SPDX-License-Identifier: Apache-2.0
// The state of a job: what Monitor::status() returns and `gradmonctl status` shows. Values. Standard library
// only. control/wire/messages.cc and control/agree/message.h number the fields for the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradmon/types.h"

namespace gradmon {

// The cost of monitoring to a rank's training thread under one plan. OverheadMeter measures it and defines
// `share`. A value.
struct Overhead {
  Revision revision;           // of the plan
  std::int64_t collected = 0;  // collected steps measured so far; 0: `share` is unknown
  double share = 0;            // of the window's wall time: 0.01 is 1 %
  std::int64_t steps = 0;      // in the window, collected or not
};

struct TargetCounts {
  std::int64_t watched = 0;    // targets that the rank watches
  std::int64_t silent = 0;     // targets with silent_steps > 0
  std::int64_t unmatched = 0;  // names and patterns of the config that match nothing
};

// Counts the ranks of a status. A rank agrees if it was heard within kHeardWithinMs and
// has applied the job's revision. `counted` excludes ranks that have ended or were
// dropped: the coordinator does not ask them. A value.
struct AgreeingRanks {
  int agreeing = 0;
  int counted = 0;
  std::vector<int> dropped;
  std::vector<int> ended;
  std::int64_t waited_ms = 0;      // the longest current wait of a rank's training
  std::uint64_t rows_dropped = 0;  // of all ranks
};

// One comparison covers one kind of one step of one group of ranks.
struct ReplicasCompared {
  std::int64_t groups = 0;        // compared groups
  std::int64_t ranks = 0;         // ranks of all groups that have sent values of their replicas
  std::int64_t last_step = -1;    // the newest step compared; -1: none
  std::uint64_t comparisons = 0;  // so far, with all or only some ranks of the group
  std::uint64_t incomplete = 0;   // comparisons without some ranks of the group
  std::uint64_t unresolved = 0;   // differing buckets whose values did not arrive
  // Ranks that are not compared at present, with the reason: "rank 0: …". At most kMostNotCompared groups.
  std::vector<std::string> not_compared;

  static constexpr std::size_t kMostNotCompared = 16;
};

// Figures that a rank measures and reports. A new one needs a line in each_report_field()
// (control/agree/message.h).
struct RankReport {
  double step_ms = 0;          // mean duration of the last steps
  std::int64_t waited_ms = 0;  // current wait of its training at a fence; 0: it does not wait
  std::uint64_t records = 0;   // rows written so far
  std::uint64_t dropped = 0;
  Overhead overhead;         // of its newest plan
  TargetCounts targets;      // of its newest plan
  std::string error;         // "": none
  std::uint64_t alerts = 0;  // raised by its process so far
  // Flight recorder: rows that alerts have written, and lost rows that an alert or a rule needed.
  std::uint64_t flight_written = 0;
  std::uint64_t flight_lost = 0;
};

struct RankStatus : RankReport {
  Rank rank;
  std::string host;
  std::int64_t pid = 0;
  std::int64_t step = 0;             // the step it is in, or about to begin
  Revision revision;                 // newest applied; 0: none
  std::int64_t applied_step = -1;    // first step under that revision; -1: none
  std::string state = "absent";      // absent, idle, collecting, waiting, left or dropped
  std::int64_t last_seen_ms = 0;     // age of its last message
  std::int64_t last_stepped_ms = 0;  // age of its last change of step
  Revision accepted;                 // this rank knows the verdicts of all revisions up to it
  std::uint64_t listed_alerts = 0;   // alerts received one by one by the lead hub
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
};

}  // namespace gradmon
