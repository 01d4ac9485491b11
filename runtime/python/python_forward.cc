// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/python_forward.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace gradmon {
namespace {

namespace py = pybind11;

constexpr std::size_t kDeepest = 32;  // nesting depth; a deeper container counts as one place

class Search {
 public:
  void add(const py::handle& value, const std::string& key = "") {
    if (THPVariable_Check(value.ptr())) return add_tensor(THPVariable_Unpack(value.ptr()), key);
    const bool sequence = py::isinstance<py::tuple>(value) || py::isinstance<py::list>(value);
    const bool dict = !sequence && py::isinstance<py::dict>(value);
    const bool container = sequence || dict || is_dataclass(value);
    const bool open = container && ancestors_.size() < kDeepest &&
                      std::find(ancestors_.begin(), ancestors_.end(), value.ptr()) == ancestors_.end();
    if (!open) return void(++found.places);
    ancestors_.push_back(value.ptr());
    if (sequence) {
      for (const py::handle& element : value) add(element);
    } else if (dict) {
      for (const auto& [name, element] : py::reinterpret_borrow<py::dict>(value))
        add(element, py::str(name).cast<std::string>());
    } else {
      for (const py::handle& field : py::module_::import("dataclasses").attr("fields")(value))
        add(py::getattr(value, field.attr("name"), py::none()), field.attr("name").cast<std::string>());
    }
    ancestors_.pop_back();
  }

  ForwardTensors found;

 private:
  static bool is_dataclass(const py::handle& value) {
    return py::hasattr(py::type::handle_of(value), "__dataclass_fields__");
  }

  // The key is the place without a key, or if another element already has that key.
  void add_tensor(const at::Tensor& tensor, const std::string& key) {
    const bool taken = std::any_of(found.elements.begin(), found.elements.end(),
                                   [&](const auto& element) { return element.key == key; });
    const std::size_t place = found.places++;
    found.elements.push_back({tensor, key.empty() || taken ? std::to_string(place) : key, place});
  }

  std::vector<PyObject*> ancestors_;  // containers around the current value, to stop at cycles
};

}  // namespace

ForwardTensors tensors_of(const py::handle& value) {
  Search search;
  search.add(value);
  search.found.lone = THPVariable_Check(value.ptr());
  return std::move(search.found);
}

ForwardTensors tensors_of_call(const py::handle& inputs, const py::dict& keywords) {
  Search search;
  search.add(inputs);
  const std::size_t places = search.found.places;
  for (const auto& [name, value] : keywords) search.add(value, py::str(name).cast<std::string>());
  search.found.places = places;
  return std::move(search.found);
}

}  // namespace gradmon
