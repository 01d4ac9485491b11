// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/first_hook.h"

#include <utility>
#include <vector>

namespace gradmon {

namespace py = pybind11;

void FirstHook::take_off() noexcept {
  if (PyObject_DelItem(hooks_.ptr(), id_.ptr()) != 0) PyErr_Clear();  // the program has removed it
}

FirstHook put_first(const py::object& parameter, const py::object& hook) {
  const py::object handle = parameter.attr("register_post_accumulate_grad_hook")(hook);
  const py::object id = handle.attr("id");
  const py::object hooks = parameter.attr("_post_accumulate_grad_hooks");
  std::vector<std::pair<py::object, py::object>> others;
  for (const auto& [number, other] : py::reinterpret_borrow<py::dict>(hooks)) {
    if (!number.equal(id))
      others.emplace_back(py::reinterpret_borrow<py::object>(number),
                          py::reinterpret_borrow<py::object>(other));
  }
  // C++ walks the dict in the order of insertion, and ignores the order of move_to_end(). From here on no
  // Python code runs, so that no signal comes between.
  hooks.attr("clear")();
  hooks[id] = hook;
  for (const auto& [number, other] : others) hooks[number] = other;
  return FirstHook(hooks, id);
}

}  // namespace gradmon
