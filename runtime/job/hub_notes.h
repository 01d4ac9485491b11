// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "control/link/agent_options.h"
#include "control/link/shared_store.h"

namespace gradmon {

// How the hubs of several hosts find each other by training's store: rank 0 leaves the
// entry of the lead hub under gradmon/hubs/{launch}/lead; each other host takes the next
// number from gradmon/hubs/{launch} and leaves its hub's note under .../{number}.
// Rank 0 gets those notes, the others the entry. One call at a time.
ExchangeNotes notes_in_store(std::shared_ptr<SharedStore> store, Rank rank);

}  // namespace gradmon
