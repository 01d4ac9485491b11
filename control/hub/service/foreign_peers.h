// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/agree/message.h"

namespace gradmon {

// Who speaks to the lead hub and is not of its job: processes left over from an
// earlier launch, which stay in their own epoch, and those of another launch
// that say Hello. Only to name them. One thread; the time is a value.
class ForeignPeers {
 public:
  ForeignPeers(std::string epoch, std::string launch_id);

  // A line for the log where the sender is a stranger who was not heard before.
  std::optional<std::string> hear(const Envelope& envelope, Ticks now);
  // Those heard within the last ten seconds, as lines for the status.
  std::vector<std::string> heard(Ticks now) const;

 private:
  std::string name_of(const Envelope& envelope) const;  // "": of this job

  // Constant after construction.
  const std::string epoch_;
  const std::string launch_id_;

  std::map<std::string, Ticks> last_heard_;  // by line; a few of the many that could come
};

}  // namespace gradmon
