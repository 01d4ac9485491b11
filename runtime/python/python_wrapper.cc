// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/python_wrapper.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/wrapper_tensor.h"
#include "hooks/stats/readable.h"
#include "runtime/python/guarded.h"

namespace gradmon {
namespace {

namespace py = pybind11;

enum class Wrapper { distributed, of_parts, awaited, other };

Wrapper class_of(const py::handle& tensor) {
  const py::object order = py::type::handle_of(tensor).attr("__mro__");
  for (const py::handle& one : order) {
    const auto name = one.attr("__name__").cast<std::string>();
    if (name == "FSDPGrad") return Wrapper::of_parts;  // derived from DTensor
    if (name == "DTensor") return Wrapper::distributed;
    if (name == "AsyncCollectiveTensor") return Wrapper::awaited;
  }
  return Wrapper::other;
}

std::string class_name(const py::handle& tensor) {
  return py::type::handle_of(tensor).attr("__name__").cast<std::string>();
}

// The scopes of the DTensorSpecs seen so far, by address. Torch keeps the specs of a layer's tensors, so each
// step sees the same. With the GIL.
class KnownSpecs {
 public:
  ScopeText scope_of(const py::object& spec) {
    const auto known = known_.find(spec.ptr());
    if (known != known_.end()) return known->second.scope;
    if (known_.size() >= kMost) known_.clear();
    if (!describe_) describe_ = py::module_::import("gradmon.sharded.scopes").attr("text_of");
    ScopeText scope = make_scope(describe_(spec).cast<std::string>());
    known_.emplace(spec.ptr(), Known{spec, scope});
    return scope;
  }
  void clear() { known_.clear(); }

 private:
  static constexpr std::size_t kMost = 4096;
  struct Known {
    py::object spec;  // keeps the address from being used again
    ScopeText scope;
  };
  std::unordered_map<const PyObject*, Known> known_;
  py::object describe_;
};

// Never destroyed: Python has ended by then.
KnownSpecs& known_specs() {
  static auto* const specs = new KnownSpecs;
  return *specs;
}

Unwrapped inner_of(const py::object& wrapper);

Unwrapped inside(const py::object& value) {
  if (!THPVariable_Check(value.ptr())) return {{}, "its " + class_name(value) + " is no tensor", {}};
  const auto tensor = value.cast<at::Tensor>();
  return is_wrapper(tensor) ? inner_of(value) : Unwrapped{tensor, "", {}};
}

Unwrapped inner_of(const py::object& wrapper) {
  switch (class_of(wrapper)) {
    case Wrapper::distributed: {
      Unwrapped inner = inside(wrapper.attr("_local_tensor"));
      inner.scope = known_specs().scope_of(wrapper.attr("_spec"));
      return inner;
    }
    case Wrapper::of_parts: {
      for (const char* part : {"unreduced", "partial"}) {
        if (!wrapper.attr(part).is_none())
          return {{}, std::string("it has a part that is ") + part + " (FSDPGrad)", {}};
      }
      return inside(wrapper.attr("reduced"));
    }
    case Wrapper::awaited:
      return inside(wrapper.attr("trigger_wait")());
    case Wrapper::other:
      break;
  }
  return {{}, "tensors of class " + class_name(wrapper) + " wrap others", {}};
}

std::optional<Unwrapped> unwrap(const at::Tensor& tensor) {
  if (Py_IsInitialized() == 0) return std::nullopt;
  const py::gil_scoped_acquire ours;
  const PythonCodeInHooks in_hooks;
  try {
    const py::object wrapper = py::cast(tensor);
    const bool own_memory = tensor.has_storage() && has_allocated_storage(tensor);
    if (own_memory && class_of(wrapper) == Wrapper::other) return std::nullopt;
    return inner_of(wrapper);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) PyErr_SetInterrupt();  // A signal's: it is raised in the program.
    return Unwrapped{{}, first_line(error.what()), {}};
  }
}

}  // namespace

void read_python_wrappers() { set_unwrap(&unwrap); }

void forget_python_wrappers() { known_specs().clear(); }

}  // namespace gradmon
