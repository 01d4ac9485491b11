// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/main_gradient.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "runtime/python/guarded.h"

namespace gradmon {

namespace py = pybind11;

at::Tensor main_grad_of(const py::handle& parameter) {
  const py::object found = py::getattr(parameter, "main_grad", py::none());
  return THPVariable_Check(found.ptr()) ? found.cast<at::Tensor>() : at::Tensor();
}

MainGradient main_gradient_of(const py::object& parameter) {
  const py::gil_scoped_acquire held;
  const PythonCodeInHooks in_hooks;  // a parameter's class may compute its attributes
  const py::object fused_accumulation = py::getattr(parameter, "grad_added_to_main_grad", py::none());
  return {main_grad_of(parameter), fused_accumulation.ptr() == Py_True};
}

}  // namespace gradmon
