// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/described_model.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "hooks/names/target_names.h"
#include "runtime/python/main_gradient.h"

namespace gradmon {
namespace {

namespace py = pybind11;

// Adds the other names of tied parameters: named_parameters() lists each parameter under its first name
// only.
class OtherNames {
 public:
  explicit OtherNames(WatchedModel& chunk) : chunk_(chunk) {
    for (std::size_t i = 0; i < chunk.parameters.size(); ++i) {
      listed_.insert(unwrapped_name(chunk.parameters[i].name));
      places_.emplace(chunk.parameters[i].tensor.unsafeGetTensorImpl(), i);
    }
  }

  void add(const std::string& module_name, const py::handle& module) {
    const py::object own = py::getattr(module, "_parameters", py::none());
    if (!PyDict_Check(own.ptr())) return;  // a ScriptModule
    for (const auto& [key, value] : own.cast<py::dict>()) {
      if (!THPVariable_Check(value.ptr())) continue;
      const auto place = places_.find(value.cast<at::Tensor>().unsafeGetTensorImpl());
      const std::string name = (module_name.empty() ? "" : module_name + ".") + key.cast<std::string>();
      if (place == places_.end() || !listed_.insert(unwrapped_name(name)).second) continue;
      WatchedParameter again = chunk_.parameters[place->second];
      again.name = name;
      chunk_.parameters.push_back(std::move(again));
    }
  }

 private:
  WatchedModel& chunk_;
  std::set<std::string> listed_;
  std::unordered_map<const void*, std::size_t> places_;  // index in chunk_.parameters, by tensor
};

// Whether the module is an embedding. vocab_start_index: Megatron's VocabParallelEmbedding.
bool embeds(const py::handle& module) {
  return py::hasattr(module, "num_embeddings") || py::hasattr(module, "vocab_start_index");
}

std::optional<bool> causal_of(const py::handle& module) {
  const py::object said = py::getattr(module, "is_causal", py::none());
  return py::isinstance<py::bool_>(said) ? std::optional(said.cast<bool>()) : std::nullopt;
}

// False for Megatron's experts (`allreduce` is False), and for a DTensor that is not whole on each rank.
bool is_replicated(const py::handle& parameter) {
  if (py::object(py::getattr(parameter, "allreduce", py::none())).is(py::bool_(false))) return false;
  const py::object placements = py::getattr(parameter, "placements", py::none());
  if (placements.is_none()) return true;
  for (const py::handle& placement : placements) {
    if (!placement.attr("is_replicate")().cast<bool>()) return false;
  }
  return true;
}

}  // namespace

WatchedModel described_model(const py::handle& model, UnreducedSource source) {
  WatchedModel chunk;
  for (const py::handle& item : model.attr("named_parameters")()) {
    const auto [name, parameter] = item.cast<std::pair<std::string, at::Tensor>>();
    chunk.parameters.push_back({name, 0, parameter});
    chunk.parameters.back().gradient_source = source;
    chunk.parameters.back().replicated = is_replicated(item.cast<py::tuple>()[1]);
    if (py::hasattr(item.cast<py::tuple>()[1], "main_grad"))
      chunk.parameters.back().main_gradient = [tensor = parameter] { return main_gradient_of(tensor); };
  }
  OtherNames other_names(chunk);
  for (const py::handle& item : model.attr("named_modules")()) {
    const auto [name, module] = item.cast<std::pair<std::string, py::object>>();
    chunk.modules.push_back({name, 0, identity_of(module), causal_of(module), embeds(module)});
    other_names.add(name, module);
  }
  chunk.modules = without_wrappers(std::move(chunk.modules));
  return chunk;
}

}  // namespace gradmon
