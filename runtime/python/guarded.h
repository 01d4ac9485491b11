// SPDX-License-Identifier: Apache-2.0
// Keeps our own errors out of the program's forward and update.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <mutex>
#include <set>
#include <string>

#include "control/log.h"

namespace gradmon {

// Logs each key once. With the GIL.
inline void warn_once(const std::string& key, const std::string& text) {
  static std::set<std::string> said;
  if (said.insert(key).second) log_warn(text);
}

// Runs `body` and logs its exceptions, because it runs within the program's own forward or update. A
// Python exception that is not an Exception (KeyboardInterrupt, SystemExit) passes through. With the
// GIL.
template <typename Body>
void guarded(const char* what, Body&& body) {
  try {
    body();
  } catch (const pybind11::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    warn_once(what, std::string("cannot read ") + what + ": " + error.what());
  } catch (const std::exception& error) {
    warn_once(what, std::string("cannot read ") + what + ": " + error.what());
  }
}

// Lives while the calls of one kind run, one at a time and without the GIL: autograd has a thread for each
// device, and a program may update in its hooks. Recursive, because a signal handler in Python may run
// within.
class AloneWithoutGil {
 public:
  explicit AloneWithoutGil(std::recursive_mutex& mutex) : lock_(mutex) {}

 private:
  const pybind11::gil_scoped_release others_run_;
  const std::lock_guard<std::recursive_mutex> lock_;  // Keep last: waits without the GIL.
};

// Lives while hooks run Python code. A signal handler may call Monitor.stop() there, but the hooks must not
// be removed yet.
class PythonCodeInHooks {
 public:
  PythonCodeInHooks() noexcept { ++running_; }
  ~PythonCodeInHooks() { --running_; }
  PythonCodeInHooks(const PythonCodeInHooks&) = delete;
  PythonCodeInHooks& operator=(const PythonCodeInHooks&) = delete;

  // True if hooks on this thread run Python code now.
  static bool running() noexcept { return running_ > 0; }

 private:
  static inline thread_local int running_ = 0;
};

// Runs our Python code in a hook, whose caller catches all exceptions. If a signal handler raises
// KeyboardInterrupt or SystemExit in that code, the program gets a KeyboardInterrupt soon. With the GIL.
template <typename Call>
auto call_in_hook(Call&& call) {
  const PythonCodeInHooks in_hooks;
  try {
    return call();
  } catch (const pybind11::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) PyErr_SetInterrupt();
    throw;
  }
}

}  // namespace gradmon
