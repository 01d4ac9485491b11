// SPDX-License-Identifier: Apache-2.0
// What members and the coordinator say to each other, as values. Meaning, and
// what happens where one is lost: control/PROTOCOL.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "control/agree/overhead.h"
#include "control/agree/plan.h"
#include "control/agree/target_status.h"
#include "control/step.h"

namespace gradmon {

inline constexpr std::uint32_t kProtocolVersion = 2;

// --- Member to coordinator. ---

struct Hello {
  std::string launch_id;
  int world_size = 1;
  std::string host;
  std::int64_t pid = 0;    // as the rank's own namespace counts; for people
  std::string process_id;  // unique to this process: 128 random bits
  Step start_iteration;
  std::uint32_t version = kProtocolVersion;
  std::uint64_t number = 0;  // rises over all Hellos and Progresses of a process; echoed by Welcome
  Step step;                 // the step it is in, or about to begin
  // The process is new or has lapsed: it collects nothing until a commit that it
  // becomes ready for is in force.
  bool lapsed = true;
  std::string held_epoch;       // the epoch of what follows; "" in a process's first Hello
  std::int64_t epoch_order = 0;  // of that, as its Welcome said
  std::optional<Verdict> held;  // the newest commit that it keeps
};

// The rank could carry the plan out. It promises nothing.
struct Offered {
  Revision revision;
  std::string config_sha256;
  std::int64_t matches = 0;  // targets the plan means on this rank
  std::string unmatched;     // where there are none: what matches nothing, for people
};

struct Reject {
  Revision revision;
  std::string reason;
};

// The promise: this rank does not begin `fence` before it has heard the verdict or has lapsed.
struct Ready {
  Revision revision;
  std::string config_sha256;
  Step fence;
};

// The rank's training has waited for verdicts too long lately.
struct Busy {
  Revision revision;
  std::string reason;
};

struct Applied {
  Revision revision;
  Step step;
};

// All rows of a plan that ran to its end are on disk.
struct Finished {
  Revision revision;
};

// Iterations in which a scaler of gradients has left out the optimizer's step.
struct SkippedUpdates {
  std::uint64_t count = 0;
  Step last{-1};
};

struct Progress {
  std::uint64_t number = 0;  // as in Hello; echoed by ProgressAck
  Step step;
  double step_ms = 0;
  bool collecting = false;
  bool waiting = false;
  std::int64_t waited_ms = 0;  // how long training has stood at its fence, where it waits
  std::uint64_t records = 0;
  std::uint64_t dropped = 0;
  // What this rank knows and has done, so that a lost message is made good.
  Revision closed;
  Revision applied;
  Step applied_step;
  Revision finished;
  std::string error;
  std::vector<std::string> warnings;  // of the plan in force: targets without a match
  Overhead overhead;
  TargetCounts targets;
  SkippedUpdates skipped;
};

struct Left {
  Step last;
};

// Said by a hub for a rank whose side has closed the connection.
struct Disconnected {};

// What a plan would mean on this rank, or what it watches now; nothing is promised.
struct DryRunAnswer {
  std::string id;
  std::int64_t matches = 0;
  std::string objection;  // why it could not be carried out; "" where it could
  TargetList targets;     // whole from rank 0, from the others what is noteworthy
};

// --- Coordinator to member. ---

struct Welcome {
  std::string process_id;  // whom it answers
  std::uint64_t incarnation = 0;
  std::uint64_t number = 0;  // of the Hello: the lease counts from when that was sent
  std::string refused;       // "" or why it may not join; nothing below holds then
  bool again = false;        // refused for now: say Hello again
  bool starts_on = false;    // revision 1 comes: hold the step after the first
  std::string run_id;        // 8 hex digits in the names of the output directories
  std::int64_t started = 0;  // wall time of the job, ms since 1970
  // Epochs of one launch in the order in which they began: no rank goes back to an
  // older one, whose hub may live where its directory was removed.
  std::int64_t epoch_order = 0;
  KnownDecisions last;
};

// The plan of an open revision. Nobody promises anything yet.
struct Offer {
  Revision revision;
  PlanPtr plan;
};

struct Prepare {
  Revision revision;
  std::string config_sha256;  // of the plan that was offered
  std::int64_t lookahead = 1;
  KnownDecisions last;
};

struct Decided {
  KnownDecisions last;
};

// The acknowledgement of a Progress: it renews the lease.
struct ProgressAck {
  std::uint64_t number = 0;
};

struct LeftAck {};

// The sender is no member (any more), or the coordinator is another: say Hello.
struct RejoinRequest {};

// Another process has taken this rank number.
struct Replaced {};

// What would this plan mean on your rank? Without one: what do you watch now?
struct DryRun {
  std::string id;
  PlanPtr plan;
  std::size_t room = 0;  // bytes for the targets of the answer
};

using Message = std::variant<Hello, Offered, Reject, Ready, Busy, Applied, Finished, Progress, Left,
                             Disconnected, DryRunAnswer, Welcome, Offer, Prepare, Decided, ProgressAck,
                             LeftAck, RejoinRequest, Replaced, DryRun>;

// A message with its address. Of another epoch or an older incarnation: dropped.
struct Envelope {
  std::string epoch;              // "" in a Hello only
  Rank rank;                      // the member's, whichever way it goes
  std::uint64_t incarnation = 0;  // of the rank's membership; 0 in a Hello
  Message message;
};

}  // namespace gradmon
