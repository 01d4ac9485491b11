// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "control/agree/journal.h"
#include "control/agree/member.h"
#include "control/net/bus.h"
#include "control/net/job_homes.h"

namespace gradmon {

enum class Mode : std::uint8_t { static_once, dynamic };

// Where a process stands in its job; constant.
struct AgentOptions {
  Rank rank;
  int world_size = 1;
  std::string launcher_id;  // the same on all ranks of one launch
  Mode mode = Mode::dynamic;
  std::filesystem::path output_dir;
  std::filesystem::path config_path;    // read by rank 0 alone
  std::optional<std::string> endpoint;  // none: a Unix socket of our own, found by gradmon.json
  InsecureLoopback loopback = InsecureLoopback::refused;
  std::optional<std::filesystem::path> keys;  // the key directory, for TCP; curve_keys.h
  JobHomes::OpenStore open_store;  // of training's store, for ranks without a directory in common; or null
  Step start_iteration;
  std::string torch;               // its version, for the status
  std::vector<std::string> hooks;  // the kinds of record this build can collect, for the status
};

// What all ranks of a job have in common, drawn by rank 0.
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
  // The rank's run directory, empty while there is none.
  std::function<std::filesystem::path()> run_directory;
  ListTargets list_targets = {};  // null: there is nothing to tell
};

}  // namespace gradmon
