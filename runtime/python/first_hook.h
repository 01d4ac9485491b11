// SPDX-License-Identifier: Apache-2.0
// A parameter's post-accumulate hook that runs before other hooks of that kind (torch >= 2.1).
#pragma once

#include <pybind11/pybind11.h>

#include <utility>

namespace gradmon {

// With the GIL. take_off() runs no Python code, because a signal handler could raise in it.
class FirstHook {
 public:
  FirstHook(pybind11::object hooks, pybind11::object id) : hooks_(std::move(hooks)), id_(std::move(id)) {}
  void take_off() noexcept;

 private:
  pybind11::object hooks_;  // the parameter's dict
  pybind11::object id_;
};

// Registers the hook, which runs before existing hooks and later ones. The others keep their order. With the
// GIL. Throws what torch throws.
FirstHook put_first(const pybind11::object& parameter, const pybind11::object& hook);

}  // namespace gradmon
