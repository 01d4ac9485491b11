// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace gradmon {

// True if `message` says that the search `which` found no job; for example "named train.py". While any
// hub of this user on this host does not answer, the message says "no job … answered" and names that hub.
inline bool says_no_job(const std::string& message, const std::string& which) {
  return message.find("no live job " + which + " (") != std::string::npos ||
         message.find("no job " + which + " answered:") != std::string::npos;
}

}  // namespace gradmon
