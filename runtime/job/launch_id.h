// SPDX-License-Identifier: Apache-2.0
// The launch id: equal on all ranks of one launch, different in the next launch.
//
// First source that has it wins:
//   GRADMON_RUN_ID; a single rank draws its own; torchrun; the launcher that has
//   numbered the ranks (Open MPI, Slurm, a PMI launcher); the program's process
//   group; a nonce that rank 0 leaves in training's store; the Slurm step around
//   the ranks; the parent process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "control/link/launch_id_search.h"
#include "control/link/shared_store.h"
#include "runtime/job/environment.h"

namespace gradmon {

struct LaunchIdSource {
  std::optional<LaunchId> known;
  AskForLaunchId ask;  // null: the id is known, or nothing can be asked
  // Why dynamic mode is off until the id is known; "" where it is known.
  std::string reason;
};

// What the search looks at besides the Environment.
struct LaunchEnvironment {
  Lookup lookup = from_process;
  // A connection whose calls take a second at most; null: no store is asked.
  std::function<std::shared_ptr<SharedStore>(const StorePlace&)> open_store;
  std::function<std::string()> parent;       // parent_process, or a test's own; null: not looked at
  // A value that the program's process group has in common, none while it is not known;
  // null: there is no group. Any thread.
  std::function<std::optional<std::string>()> nonce = {};
  std::chrono::milliseconds look_for{2000};  // how long a try looks for the nonce, the last call's time aside
};

// `monitor`: the n-th Monitor of this process, from 1: all ranks make them in the
// same order.
LaunchIdSource find_launch_id(const Environment& environment, int monitor, const LaunchEnvironment& world);

// Whether find_launch_id() needs neither nonce nor store.
bool environment_names_launch(const Environment& environment, const Lookup& lookup);

// Host name and start time of the parent process; "" where the parent tells
// nothing: it is outside the container, or init has adopted this process.
std::string parent_process();

}  // namespace gradmon
