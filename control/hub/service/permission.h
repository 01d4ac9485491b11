// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "control/hub/transport/bus.h"
#include "control/wire/command.h"

namespace gradmon {

// The reason why the client may not send this message; "" if it may.
std::string command_objection(const Bus::Incoming& from, CommandVerb verb);
std::string rank_objection(const Bus::Incoming& from);

}  // namespace gradmon
