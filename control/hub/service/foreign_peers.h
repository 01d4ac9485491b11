// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/agree/message.h"

namespace gradmon {

// Processes that send to the lead hub but do not belong to its job: processes of an earlier launch, and
// processes of another launch that say Hello. Status and log only name them. One thread; the caller passes
// the time.
class ForeignPeers {
 public:
  ForeignPeers(std::string epoch, std::string launch_id);

  // Returns a log line if the sender is foreign and was not heard before.
  std::optional<std::string> hear(const Envelope& envelope, Ticks now);
  // Status lines for those heard within the last ten seconds.
  std::vector<std::string> heard(Ticks now) const;

 private:
  std::string name_of(const Envelope& envelope) const;  // "": of this job
  void forget_silent(Ticks now);

  // Constant after construction.
  const std::string epoch_;
  const std::string launch_id_;

  std::map<std::string, Ticks> last_heard_;  // by line; bounded
};

}  // namespace gradmon
