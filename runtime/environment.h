// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "control/wire/messages.h"

namespace gradmon {

// Address of training's TCPStore.
struct StoreAddress {
  std::string host;
  std::uint16_t port = 0;
};

// The settings of this process, from environment variables and MonitorOptions. Its introduction to the hub
// lacks the launch id and the lead job.
struct Environment : Introduction {
  // The replica group of rank and size (torchft: REPLICA_GROUP_ID). Each group is a separate job. "": no
  // groups exist.
  std::string replica_group;
  std::string source;  // variables that gave rank and size; "": none
  bool dynamic = false;
  std::string mode_error;    // why DYNAMIC_MONITOR is invalid (static mode is used); "": it is valid
  int grad_acc_steps = 1;    // micro batches per step; from MonitorOptions only
  bool short_steps = false;  // some steps have fewer; from MonitorOptions only
  bool keep_last_step = false;
  std::string job_name;               // GRADMON_JOB; "" for none: then program_name() is shown
  std::optional<StoreAddress> store;  // GRADMON_STORE, else MASTER_ADDR and MASTER_PORT
};

using Lookup = std::function<std::optional<std::string>(const char* name)>;

// Reads this process's environment; nullopt if the variable is not set.
std::optional<std::string> from_process(const char* name);

// `lookup`, except for RANK and WORLD_SIZE if given.
Lookup with_rank(Lookup lookup, std::optional<int> rank, std::optional<int> world_size);

// True if the text can be a part of file names and launch ids: up to 64 of A-Z a-z 0-9 _ . -, not a dot
// first.
bool is_group_name(const std::string& text) noexcept;

// The name of the script or module that Python runs, else of the program; "" if it is unknown.
// `command_line`: as in /proc/self/cmdline.
std::string program_name(const std::string& command_line);

// An error names the variable, its value and what was expected.
tl::expected<Environment, std::string> read_environment(const Lookup& lookup);

}  // namespace gradmon
