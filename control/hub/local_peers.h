// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "control/log.h"
#include "control/wire/messages.h"

namespace gradmon {

// The ranks and clients of this host, for the hub's lead or relay. Implemented by Hub, whose thread alone
// calls it. A client is known by `peer`, as on_command() of the lead or relay got it.
class LocalPeers {
 public:
  // Sends a message of the lead hub to ranks.
  virtual void deliver(const Bundle& bundle) = 0;
  virtual void answer(const std::string& peer, const std::string& frame) = 0;
  virtual void tell_rank0(LogLevel level, const std::string& text) = 0;  // writes a line into its log
  // Sends to a rank that can ask training's store; on the lead hub only to rank 0.
  virtual void ask_store(const StoreNotes& notes) = 0;
  virtual bool has_rank0() const = 0;
  virtual std::size_t ranks() const = 0;

 protected:
  ~LocalPeers() = default;
};

}  // namespace gradmon
