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
#include "control/alerts/alert_report.h"
#include "control/host/environment.h"
#include "control/link/launch_id_search.h"
#include "control/wire/messages.h"

namespace gradmon {

// Puts the note `own` into training's store for the hubs of other hosts ("": puts nothing) and returns
// the notes of those hubs. May take seconds: never call it on the training thread.
using RendezvousExchange = std::function<tl::expected<std::vector<std::string>, std::string>(
    const std::string& launch_id, const std::string& own)>;

enum class Mode : std::uint8_t { static_once, dynamic };

// This rank's place in its job. Constant.
struct AgentOptions {
  Rank rank;
  int world_size = 1;
  std::string launch_id;             // the same on all ranks of one launch; "" if unknown
  AskForLaunchId ask_for_launch_id;  // null: the id is known, or has no source
  std::string launch_id_error;       // the reason why the id is unknown
  Mode mode = Mode::dynamic;
  std::filesystem::path output_dir;
  LeadJob lead;          // sent by rank 0 only
  std::string endpoint;  // GRADMON_ENDPOINT; "" for none
  std::string keys;      // the key directory; "" for none
  bool insecure_loopback = false;
  std::optional<bool> several_hosts;  // true: the job has ranks on other hosts; nullopt: unknown
  std::string master;                 // MASTER_ADDR; "" for none
  RendezvousExchange exchange_notes;  // null: no store
  Step start_iteration;
  EnvironmentLookup environment = process_environment;  // for the job's directory and the hub's program
};

// The identity of a job's current epoch, the same on all ranks. The lead hub chooses it.
struct JobIdentity {
  std::string epoch;
  std::string run_id;  // 8 hex digits
  WallTime started = 0;
};

// The rank's results so far, for Progress and status.
struct CollectingReport {
  std::uint64_t records = 0;  // rows on disk
  std::uint64_t dropped = 0;
  std::uint64_t flight_written = 0;  // rows of the flight recorder, as in RankStatus
  std::uint64_t flight_lost = 0;
  Overhead overhead;  // OverheadMeter::measured()
  TargetCounts targets;
  SkippedUpdates skipped;
  std::string error;                  // "": none
  std::vector<std::string> warnings;  // of the plan in force: targets without a match
};

// The agent's questions to its rank. Called on the agent thread; must return at once.
struct AgentCalls {
  CanCarryOut can_carry_out;
  std::function<CollectingReport()> report;
  ListTargets list_targets = {};                // null: this rank lists no targets
  std::function<void(AlertReport)> raise = {};  // takes alerts found by the lead hub; null: drops them
};

}  // namespace gradmon
