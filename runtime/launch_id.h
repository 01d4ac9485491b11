// SPDX-License-Identifier: Apache-2.0
// The launch id: equal on all ranks of one launch, different in the next launch.
//
// The first source that has an id wins:
//   GRADMON_RUN_ID; a random id if there is only one rank; torchrun; the launcher that has numbered
//   the ranks (Open MPI, Slurm, a PMI launcher); the program's process group; a nonce that rank 0
//   puts into training's store; the Slurm step around the ranks; the parent process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "control/link/launch_id_search.h"
#include "runtime/environment.h"

namespace gradmon {

struct LaunchIdSource {
  std::optional<LaunchId> known;
  AskForLaunchId ask;  // null: the id is known, or cannot be requested
  // The reason why dynamic mode is off until the id is known; "" if the id is known.
  std::string reason;
  // While the id is unknown: a name of the launch, equal on the ranks that have the same parent process, and
  // random without a parent; "" if the id is known.
  std::string name_on_host = {};
};

// Other inputs of the search, besides the Environment.
struct LaunchEnvironment {
  Lookup lookup = from_process;
  // Makes a store client whose calls take at most 1 s. Null: no store is used.
  std::function<std::shared_ptr<SharedStore>(const StoreAddress&)> open_store;
  std::function<std::string()> parent;  // parent_process(), or a test's; null: not used
  // Returns a value that all ranks of the program's process group share; nullopt while it is unknown. Null:
  // the program has no group. Any thread.
  std::function<std::optional<std::string>()> nonce = {};
  std::chrono::milliseconds look_for{2000};  // longest search for the nonce, without the last call's time
};

// `monitor`: number of the Monitor within this process, from 1. All ranks make their Monitors in the
// same order.
LaunchIdSource find_launch_id(const Environment& environment, int monitor, const LaunchEnvironment& world);

// True if find_launch_id() needs neither nonce nor store.
bool environment_names_launch(const Environment& environment, const Lookup& lookup);

// Makes a client of PyTorch's TCPStore, which training's launcher or its rank 0 serves at that address
// (MASTER_ADDR:MASTER_PORT). A call takes at most `patience`. Each call makes a connection and closes it, so
// a server that dies later cannot affect this process. gradmon never serves a store.
std::shared_ptr<SharedStore> open_torch_store(const StoreAddress& address,
                                              std::chrono::milliseconds patience = std::chrono::seconds(1));

// Host name, pid and start time of the parent process; "" if the parent is outside the container or is
// init.
std::string parent_process();

}  // namespace gradmon
