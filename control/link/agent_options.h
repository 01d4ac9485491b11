// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/agree/journal.h"
#include "control/agree/member.h"
#include "control/host/environment.h"
#include "control/link/launch_id_search.h"
#include "control/wire/messages.h"

namespace gradmon {

// Leaves `own` in training's store for the hubs of other hosts, where it is not "", and
// returns what they have left. Takes seconds at most; never on the training thread.
using ExchangeNotes =
    std::function<tl::expected<std::vector<std::string>, std::string>(const std::string& launch_id,
                                                                      const std::string& own)>;

enum class Mode : std::uint8_t { static_once, dynamic };

// Where a process stands in its job; constant.
struct AgentOptions {
  Rank rank;
  int world_size = 1;
  std::string launch_id;             // the same on all ranks of one launch; "": not known
  AskForLaunchId ask_for_launch_id;  // null: it is known, or nothing can be asked
  std::string launch_trouble;        // why it is not known
  Mode mode = Mode::dynamic;
  std::filesystem::path output_dir;
  LeadJob lead;             // sent by rank 0 alone
  std::string endpoint;     // GRADMON_ENDPOINT; "" for none
  std::string keys;         // the key directory; "" for none
  bool insecure_loopback = false;
  std::optional<bool> several_hosts;  // none: not known
  std::string master;                 // MASTER_ADDR; "" for none
  ExchangeNotes exchange_notes;       // null: there is no store
  Step start_iteration;
  EnvironmentLookup environment = process_environment;  // for the job's directory and the hub's program
};

// What all ranks of a job have in common, drawn by the lead hub.
struct JobIdentity {
  std::string epoch;
  std::string run_id;  // 8 hex digits
  WallTime started = 0;
};

// What the agent tells of the rank's own collecting.
struct CollectingReport {
  std::uint64_t records = 0;  // on disk
  std::uint64_t dropped = 0;
  Overhead overhead;  // OverheadMeter::measured()
  TargetCounts targets;
  SkippedUpdates skipped;
  std::string error;                  // "" if nothing disturbs it
  std::vector<std::string> warnings;  // of the plan in force: targets without a match
};

// How the agent asks the rank it serves. Called on the agent thread; quick.
struct AgentCalls {
  CanCarryOut can_carry_out;
  std::function<CollectingReport()> report;
  ListTargets list_targets = {};  // null: there is nothing to tell
};

}  // namespace gradmon
