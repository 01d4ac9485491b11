// SPDX-License-Identifier: Apache-2.0
// Finds and starts gradmon-hub from within a training process. Errors are values,
// also where the system has no descriptor, process or memory left.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/host/environment.h"
#include "control/host/job_directory.h"

namespace gradmon {

// The file that holds this code, links resolved: the training program or a shared
// library. Empty where it cannot be told. Any thread.
std::filesystem::path own_object();

// `gradmon-hub` beside `object`, or in ../bin or ../lib of its directory; else the
// absolute path in GRADMON_HUB. The error names every file looked for. Where the
// environment is the process's own: the training thread, when the Monitor is made.
[[nodiscard]] tl::expected<std::filesystem::path, std::string> find_hub_program(
    const EnvironmentLookup& environment = process_environment,
    const std::filesystem::path& object = own_object());

// This process's environment, NAME=VALUE, without LD_PRELOAD: what training
// preloads is none of the hub's. Reads what setenv(3) changes: the training thread,
// when the Monitor is made; a hub started later gets the environment of then.
std::vector<std::string> hub_environment();

struct HubCommand {
  std::filesystem::path program;
  JobDirectory directory;              // its path is the first argument
  std::vector<std::string> arguments;  // after it
  std::vector<std::string> environment;
  std::chrono::milliseconds most_wait{2000};
};

// Runs the program in a session of its own, with all signals unblocked and at
// their defaults, standard streams on /dev/null and no other descriptor. The
// program forks itself away: this waits until the process started here has ended
// with 0, at most `most_wait`, then kills it, so that training has no child left.
// Only that process is waited for. It does not tell whether a hub runs: connect to
// learn that. Any thread but one that must not wait; the exec itself waits for the
// disk that holds the program.
[[nodiscard]] tl::expected<void, std::string> start_hub(const HubCommand& command) noexcept;

}  // namespace gradmon
