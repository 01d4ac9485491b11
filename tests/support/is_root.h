// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <string>

#include "tests/support/catch.h"

namespace gradmon {

// True if this process is root. Otherwise warns that the test skips the rest, which needs it to be.
inline bool is_root(const std::string& to_do_what) {
  if (geteuid() != 0) WARN("skipped: only root can " + to_do_what);
  return geteuid() == 0;
}

}  // namespace gradmon
