// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// What the environment variables say of this process.
// Where training's TCPStore is served.
struct StorePlace {
  std::string host;
  std::uint16_t port = 0;
};

struct Environment {
  int rank = 0;
  int world_size = 1;
  std::string source;       // the variables it was read from, "" for a single rank
  bool dynamic = false;
  std::string objection;  // to what DYNAMIC_MONITOR says; "": none. Static mode then
  std::filesystem::path output_dir;
  int grad_acc_steps = 1;  // micro batches of a step; only the program knows
  bool keep_last_step = false;
  std::string job_name;  // GRADMON_JOB; "" for none
  std::optional<std::string> endpoint;
  // Whether the launcher has started ranks on several hosts; none: it does not say.
  std::optional<bool> several_hosts;
  std::string master;               // MASTER_ADDR; "" for none
  std::optional<StorePlace> store;  // GRADMON_STORE, else MASTER_ADDR and MASTER_PORT
  bool insecure_loopback = false;  // TCP on loopback without keys is all right
  std::optional<std::filesystem::path> keys;  // the directory of keys, for TCP
};

using Lookup = std::function<std::optional<std::string>(const char* name)>;

// Asks the process's own environment.
std::optional<std::string> from_process(const char* name);

// The error names the variable, its value and what was expected.
tl::expected<Environment, std::string> read_environment(const Lookup& lookup);

}  // namespace gradmon
