// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// Address of training's TCPStore.
struct StoreAddress {
  std::string host;
  std::uint16_t port = 0;
};

// The settings of this process, from environment variables and MonitorOptions.
struct Environment {
  int rank = 0;
  int world_size = 1;
  // The replica group of rank and size (torchft: REPLICA_GROUP_ID). Each group is a separate job. "": no
  // groups exist.
  std::string replica_group;
  std::string source;  // variables that gave rank and size; "": none
  bool dynamic = false;
  std::string mode_error;  // why DYNAMIC_MONITOR is invalid (static mode is used); "": it is valid
  std::filesystem::path output_dir;
  int grad_acc_steps = 1;    // micro batches per step; from MonitorOptions only
  bool short_steps = false;  // some steps have fewer; from MonitorOptions only
  bool keep_last_step = false;
  std::string job_name;  // GRADMON_JOB; "" for none: then program_name() is shown
  std::optional<std::string> endpoint;
  // True: the launcher has started ranks on several hosts; nullopt: unknown.
  std::optional<bool> several_hosts;
  std::string master;                         // MASTER_ADDR; "" for none
  std::optional<StoreAddress> store;          // GRADMON_STORE, else MASTER_ADDR and MASTER_PORT
  bool insecure_loopback = false;             // allows TCP without keys on loopback
  std::optional<std::filesystem::path> keys;  // key directory, for TCP
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
