// SPDX-License-Identifier: Apache-2.0
// The messages between members and the coordinator, as values. control/PROTOCOL.md defines each message and
// the effect of its loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "control/agree/plan.h"
#include "control/agree/target_status.h"
#include "control/alerts/alert_report.h"
#include "control/alerts/replicas.h"
#include "control/step.h"
#include "gradmon/status.h"

namespace gradmon {

inline constexpr std::uint32_t kProtocolVersion = 2;

// The identity of a job's current epoch, the same on all ranks. The lead hub chooses it.
struct JobIdentity {
  std::string epoch;
  std::string run_id;          // 8 hex digits in the names of the output directories
  WallTime started = 0;        // of the job
  std::string launch_id = {};  // the same in all epochs of a launch
  int world_size = 1;
};

// --- Member to coordinator. ---

struct Hello {
  std::string launch_id;
  int world_size = 1;
  std::string host;
  std::int64_t pid = 0;    // in the rank's own PID namespace; for people
  std::string process_id;  // unique to this process: 128 random bits
  Step start_iteration;
  std::uint32_t version = kProtocolVersion;
  std::uint64_t number = 0;  // rises over all Hellos and Progresses of a process; echoed by Welcome
  Step step;                 // the step it is in, or about to begin
  // The process is new or has lapsed. It collects nothing until a commit that it has promised is in
  // force.
  bool lapsed = true;
  std::string held_epoch;        // the epoch that the rank last joined; "" in a process's first Hello
  std::int64_t epoch_order = 0;  // of that epoch, from its Welcome
  std::optional<Verdict> held;   // the newest commit that the rank holds
};

// The rank can carry out the plan. It promises nothing.
struct Offered {
  Revision revision;
  std::string config_sha256;
  std::int64_t matches = 0;  // number of targets on this rank
  std::string unmatched;     // if matches is 0: the names and patterns that match nothing; for people
};

struct Reject {
  Revision revision;
  std::string reason;
};

// The promise: this rank does not begin step `fence` before it knows the verdict or has lapsed.
struct Ready {
  Revision revision;
  std::string config_sha256;
  Step fence;
};

// The rank refuses, because its training has recently waited too long for verdicts.
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

// Iterations in which a GradScaler skipped the optimizer's step.
struct SkippedUpdates {
  std::uint64_t count = 0;
  Step last{-1};
};

// The rank's results so far.
struct CollectingReport : RankReport {
  SkippedUpdates skipped;
  std::vector<std::string> warnings;  // of the plan in force: targets without a match
};

struct Progress : CollectingReport {
  std::uint64_t number = 0;  // as in Hello; echoed by ProgressAck
  Step step;
  bool collecting = false;
  bool waiting = false;
  // The rank's knowledge and progress. Makes up for lost messages.
  Revision closed;
  Revision applied;
  Step applied_step;
  Revision finished;
};

// Calls visit(path, in_status, in_progress, member) for each field of a RankReport: its keys in `gradmonctl
// status --json`, with slashes between them (Python's name has "_" instead), its numbers in the messages
// RankStatus and Progress, and the pointer to it. A new field has one number above 27 for both.
template <typename Visit>
void each_report_field(Visit visit) {
  visit("step_ms", 8, 2, &RankReport::step_ms);
  visit("overhead", 14, 16, &RankReport::overhead);
  visit("waited_ms", 17, 21, &RankReport::waited_ms);
  visit("records", 11, 5, &RankReport::records);
  visit("dropped", 12, 6, &RankReport::dropped);
  visit("targets", 15, 17, &RankReport::targets);
  visit("alerts/raised", 18, 23, &RankReport::alerts);
  visit("flight/written", 22, 26, &RankReport::flight_written);
  visit("flight/lost", 23, 27, &RankReport::flight_lost);
  visit("error", 13, 13, &RankReport::error);
}

struct Left {
  Step last;
};

// Sent by a hub for a rank that has closed its connection.
struct Disconnected {};

// The answer to DryRun. It promises nothing.
struct DryRunAnswer {
  std::string id;
  std::int64_t matches = 0;
  std::string objection;  // the reason why the plan cannot be carried out; "" if it can
  TargetList targets;     // complete from rank 0; from others only silent and unmatched ones
};

// --- Coordinator to member. ---

struct Welcome {
  std::string process_id;  // the process it answers
  std::uint64_t incarnation = 0;
  std::uint64_t number = 0;      // of the Hello; the lease counts from when that Hello was sent
  std::string refused;           // the reason of a refusal, else ""; if set, ignore the rest
  bool retry = false;            // refused for now; send Hello again
  bool epoch_starts_on = false;  // revision 1 follows; do not begin the second step before it
  std::string run_id;            // as in JobIdentity
  WallTime started = 0;
  // The order in which the epochs of one launch began. No rank goes back to an older epoch, whose hub
  // may still run after its directory was removed.
  std::int64_t epoch_order = 0;
  KnownDecisions last;
  bool takes_alerts = false;    // the lead hub understands AlertReport; an older hub does not
  bool takes_replicas = false;  // the same of ReplicaDigests and ReplicaValues
};

// The plan of an open revision. No rank promises anything yet.
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

// Acknowledges a Progress and renews the lease.
struct ProgressAck {
  std::uint64_t number = 0;
};

struct LeftAck {};

// The rank is no longer a member, or the coordinator has restarted. The rank must send Hello.
struct RejoinRequest {};

// Another process now has this rank number.
struct Replaced {};

// Asks how many targets a plan would match on this rank; a null plan asks for those watched now.
struct DryRun {
  std::string id;
  PlanPtr plan;
  std::size_t room = 0;  // bytes that the answer's targets may take
};

// Alerts are no part of the agreement. An AlertReport goes from a member to the lead hub, or from the lead
// hub to a member: then it holds alerts that the lead hub has found and the member must raise.
using Message =
    std::variant<Hello, Offered, Reject, Ready, Busy, Applied, Finished, Progress, Left, Disconnected,
                 DryRunAnswer, Welcome, Offer, Prepare, Decided, ProgressAck, LeftAck, RejoinRequest,
                 Replaced, DryRun, AlertReport, ReplicaDigests, ReplicaRequest, ReplicaValues>;

// A message with its address. Messages of another epoch or an older incarnation are dropped.
struct Envelope {
  std::string epoch;              // "" in a Hello only
  Rank rank;                      // of the member, in both directions
  std::uint64_t incarnation = 0;  // of the rank's membership; 0 in a Hello
  Message message;
};

}  // namespace gradmon
