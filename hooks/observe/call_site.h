// SPDX-License-Identifier: Apache-2.0
// The place in the program that makes an observed call.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace gradmon {

struct CallSite {
  std::string place;                // "train.py[23]"; without source lines "native[layers.0]" or "native"
  std::vector<std::string> frames;  // innermost first, as "file.py[line] function"; may be empty
  int vpp_stage = 0;
  bool wait_is_told = false;  // CallStack::wait_is_told
};

struct StackFrame {
  std::string path;
  std::int64_t line = 0;
  std::string function;
  std::string code;  // the source line; "": not given, read it from the file
};

struct CallStack {
  std::vector<StackFrame> frames;  // of the program, innermost first; empty if no source lines are known
  // A communication call: a line of the program or of torch made it, not C++, and its waits for the work are
  // reported to gradmon.
  bool wait_is_told = false;

  CallStack(std::vector<StackFrame> frames_, bool wait_is_told_ = false)
      : frames(std::move(frames_)), wait_is_told(wait_is_told_) {}
};

// Returns the caller's stack. Any thread. An exception trips the fuse of the calling hooks.
using StackSource = std::function<CallStack()>;

// Returns the site of the observed call that runs on this thread. Any thread. An exception trips the
// fuse of the calling hooks.
using CallSiteSource = std::function<CallSite()>;

}  // namespace gradmon
