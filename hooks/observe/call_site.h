// SPDX-License-Identifier: Apache-2.0
// Where a program makes a call that is observed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gradmon {

struct CallSite {
  std::string place;                // "train.py[23]"; "native[layers.0]" or "native" where there are no lines
  std::vector<std::string> frames;  // innermost first, as "file.py[line] function"; may be empty
  int vpp_stage = 0;
};

struct StackFrame {
  std::string path;
  std::int64_t line = 0;
  std::string function;
  std::string code;  // "": what the file has there
};

// The stack of its caller, innermost first; empty where there are no lines to tell.
// Any thread; what it throws trips the fuse of the hooks that asked.
using StackSource = std::function<std::vector<StackFrame>()>;

// The site of the call that its caller is in. Any thread; what it throws trips
// the fuse of the hooks that asked.
using CallSiteSource = std::function<CallSite()>;

}  // namespace gradmon
