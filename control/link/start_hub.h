// SPDX-License-Identifier: Apache-2.0
// Finds and starts gradmon-hub from within a training process. Returns errors even if the system has no
// descriptor, process or memory left.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/host/environment.h"
#include "control/host/job_directory.h"

namespace gradmon {

// The path, with links resolved, of the file that contains this code: the training program or a shared
// library. Empty if it is unknown. Any thread.
std::filesystem::path own_object();

// Looks for `gradmon-hub` beside `object`, then in .., ../bin and ../lib of its directory, then at the
// absolute path in GRADMON_HUB. The error names every path tried. With process_environment: call this on
// the training thread, while the Monitor is constructed.
[[nodiscard]] tl::expected<std::filesystem::path, std::string> find_hub_program(
    const EnvironmentLookup& environment = process_environment,
    const std::filesystem::path& object = own_object());

// This process's environment as NAME=VALUE, without LD_PRELOAD: libraries preloaded into training do not
// belong into the hub. No other thread may call setenv(3) meanwhile: call this on the training thread, while
// the Monitor is constructed. Hubs started later get this copy.
std::vector<std::string> hub_environment();

struct HubCommand {
  std::filesystem::path program;
  JobDirectory directory;              // its path is the first argument
  std::vector<std::string> arguments;  // the arguments after the path
  std::vector<std::string> environment;
  std::chrono::milliseconds most_wait{2000};
};

// Runs the program in its own session, with all signals unblocked and at their defaults, standard streams
// on /dev/null and no other descriptor. The program daemonises: it forks and its first process exits with
// status 0. This function waits for that exit, and kills the process after `most_wait`, so that training
// keeps no child. It waits for no other child. Success does not mean that a hub runs: connect to find
// out. If this process ignores SIGCHLD or reaps all its children, the exit status is unknown and counts as
// success. Blocks: exec also waits for the disk that holds the program. Any thread that may block.
[[nodiscard]] tl::expected<void, std::string> start_hub(const HubCommand& command) noexcept;

}  // namespace gradmon
