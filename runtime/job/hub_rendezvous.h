// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "control/link/agent_options.h"
#include "control/link/shared_store.h"

namespace gradmon {

// Lets the hubs of several hosts find each other through training's store. Rank 0 stores the lead hub's
// entry under gradmon/hubs/{launch}/lead. Each other host takes the next number from
// gradmon/hubs/{launch} and stores its hub's note under .../{number}. The returned function gives rank 0
// these notes, and the other hosts the entry. One call at a time.
RendezvousExchange rendezvous_in_store(std::shared_ptr<SharedStore> store, Rank rank);

}  // namespace gradmon
