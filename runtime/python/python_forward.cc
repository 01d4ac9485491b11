// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/python_forward.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <string>

namespace gradmon {
namespace {

namespace py = pybind11;

void add(ForwardTensors& found, const py::handle& value, const std::string& key) {
  if (THPVariable_Check(value.ptr())) {
    found.elements.push_back(
        {THPVariable_Unpack(value.ptr()), key.empty() ? std::to_string(found.places) : key, found.places});
    ++found.places;
  } else if (py::isinstance<py::tuple>(value) || py::isinstance<py::list>(value)) {
    for (const py::handle& element : value) add(found, element, "");
  } else if (py::isinstance<py::dict>(value)) {
    for (const auto& [name, element] : py::reinterpret_borrow<py::dict>(value))
      add(found, element, py::str(name).cast<std::string>());
  } else {
    ++found.places;
  }
}

}  // namespace

ForwardTensors tensors_of(const py::handle& value) {
  ForwardTensors found;
  add(found, value, "");
  found.lone = THPVariable_Check(value.ptr());
  return found;
}

}  // namespace gradmon
