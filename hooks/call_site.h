// SPDX-License-Identifier: Apache-2.0
// Where a program makes a call that is observed.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace gradmon {

struct CallSite {
  std::string place;                // "train.py[23]"; "native[layers.0]" or "native" where there are no lines
  std::vector<std::string> frames;  // innermost first, as "file.py[line] function"; may be empty
  int vpp_stage = 0;
};

// The site of the call that its caller is in. Any thread; what it throws trips
// the fuse of the hooks that asked.
using CallSiteSource = std::function<CallSite()>;

}  // namespace gradmon
