// SPDX-License-Identifier: Apache-2.0
// What members and the coordinator say to each other, as values. Meaning, and
// what happens where one is lost: control/PROTOCOL.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "control/agree/overhead.h"
#include "control/agree/plan.h"
#include "control/agree/target_status.h"
#include "control/step.h"

namespace gradmon {

inline constexpr std::uint32_t kProtocolVersion = 1;

// --- Member to coordinator. ---

struct Hello {
  std::string launcher_id;
  int world_size = 1;
  std::string host;
  std::int64_t pid = 0;
  std::uint64_t process_start = 0;  // kernel's start time of that pid, to tell a reused one
  std::string process_id;           // unique to this process: 128 random bits
  Step start_iteration;
  std::uint32_t version = kProtocolVersion;
};

// The answer to Welcome: in which homes of the register this rank sees rank 0's
// nonce. It may be armed where it sees it in the one that all ranks see.
struct Joined {
  bool shares_directory = false;
  std::string reason;  // where it does not see both
  bool shares_store = false;
};

struct Ready {
  Revision revision;
  std::string proposer;
  std::string config_sha256;
  std::int64_t matches = 0;  // targets the plan means on this rank
  Step fence;
  std::string unmatched;  // where there are none: what matches nothing, for people
};

struct Reject {
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

// The rank has run steps under an older plan than the committed one.
struct Missed {
  Revision revision;
};

// Iterations in which a scaler of gradients has left out the optimizer's step.
struct SkippedUpdates {
  std::uint64_t count = 0;
  Step last{-1};
};

struct Progress {
  Step step;
  double step_ms = 0;
  bool collecting = false;
  bool waiting = false;
  std::uint64_t records = 0;
  std::uint64_t dropped = 0;
  // What this rank knows and has done, so that a lost message is made good.
  bool shares_directory = false;
  bool shares_store = false;
  Home home = Home::undecided;
  Revision closed;
  Revision applied;
  Step applied_step;
  Revision finished;
  Revision missed;
  std::string error;
  Overhead overhead;
  TargetCounts targets;
  SkippedUpdates skipped;
};

struct Left {
  Step last;
};

// This process lives, and had not lost its rank when it was asked.
struct Pong {
  std::uint64_t number = 0;  // of the Ping
};

// What a plan would mean on this rank, or what it watches now; nothing is promised.
struct Probed {
  std::string id;
  std::int64_t matches = 0;
  std::string objection;  // why it could not be carried out; "" where it could
  TargetList targets;     // whole from rank 0, from the others what is noteworthy
};

// --- Coordinator to member. ---

struct Welcome {
  std::string process_id;  // whom it answers
  std::uint64_t incarnation = 0;
  std::string refused;       // "" or why it may not join; nothing below holds then
  bool again = false;        // refused for now: say Hello again
  bool rejoined = false;     // that rank number has been a member of this epoch before
  bool starts_on = false;    // revision 1 comes: hold the step after the first
  std::string run_id;        // 8 hex digits in the names of the output directories
  std::int64_t started = 0;  // wall time of the job, ms since 1970
  std::string nonce;         // what the register must show, wherever it is kept
  LastWord last;
};

struct Prepare {
  Revision revision;
  std::string proposer;
  PlanPtr plan;
  std::int64_t lookahead = 1;
  Ticks doubt_after{1000};
  LastWord last;
};

struct LeftHeard {};

// Another process has taken this rank number.
struct Replaced {};

// Another process claims this rank number: does the first one still live?
struct Ping {
  std::uint64_t number = 0;  // rising
};

// What would this plan mean on your rank? Without one: what do you watch now?
struct Probe {
  std::string id;
  PlanPtr plan;
  std::size_t room = 0;  // bytes for the targets of the answer
};

// The coordinator is going: no answer will come any more.
struct Closing {};

// --- Both ways. ---

struct Decided {
  LastWord last;
};

using Message = std::variant<Hello, Joined, Ready, Reject, Applied, Finished, Missed, Progress, Left, Pong,
                             Probed, Welcome, Prepare, LeftHeard, Replaced, Ping, Probe, Closing, Decided>;

// A message with its address. Of another epoch or an older incarnation: dropped.
struct Letter {
  std::string epoch;              // "" in a Hello only
  Rank rank;                      // the member's, whichever way it goes
  std::uint64_t incarnation = 0;  // 0 in Hello and Welcome
  Message message;
};

}  // namespace gradmon
