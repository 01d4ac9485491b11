// SPDX-License-Identifier: Apache-2.0
// The place in the program that makes an observed call.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gradmon {

struct CallSite {
  std::string place;                // "train.py[23]"; without source lines "native[layers.0]" or "native"
  std::vector<std::string> frames;  // innermost first, as "file.py[line] function"; may be empty
  int vpp_stage = 0;
};

struct StackFrame {
  std::string path;
  std::int64_t line = 0;
  std::string function;
  std::string code;  // the source line; "": not given, read it from the file
};

// Returns the caller's stack, innermost frame first; empty if no source lines are known.
// Any thread. An exception trips the fuse of the calling hooks.
using StackSource = std::function<std::vector<StackFrame>()>;

// Returns the site of the observed call that runs on this thread. Any thread. An exception trips the
// fuse of the calling hooks.
using CallSiteSource = std::function<CallSite()>;

}  // namespace gradmon
