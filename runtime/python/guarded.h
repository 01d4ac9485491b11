// SPDX-License-Identifier: Apache-2.0
// What keeps errors of our own out of the program's forward and update.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
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

// Runs Python code of ours where nothing may pass through. What a signal's handler raises there is thrown as
// an error, and the program gets a KeyboardInterrupt soon. With the GIL.
template <typename Call>
auto told_to_the_program(Call&& call) {
  try {
    return call();
  } catch (const pybind11::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) PyErr_SetInterrupt();
    throw;
  }
}

}  // namespace gradmon
