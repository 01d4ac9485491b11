// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/python_optimizer_state.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>

namespace gradmon {
namespace {

namespace py = pybind11;

// One group's options, or what is kept of one parameter; not set: not a dict.
class Options {
 public:
  explicit Options(const py::handle& object) {
    if (!object.is_none() && py::isinstance<py::dict>(object))
      dict_ = py::reinterpret_borrow<py::dict>(object);
  }

  bool has(const char* key) const { return dict_ && dict_->contains(key) && !(*dict_)[key].is_none(); }
  std::optional<double> number(const char* key) const {
    if (!has(key)) return std::nullopt;
    const py::object value = (*dict_)[key];
    if (THPVariable_Check(value.ptr())) return value.attr("item")().cast<double>();
    return py::isinstance<py::float_>(value) || py::isinstance<py::int_>(value)
               ? std::optional(value.cast<double>())
               : std::nullopt;
  }
  std::optional<at::Tensor> tensor(const char* key) const {
    if (!has(key) || !THPVariable_Check((*dict_)[key].ptr())) return std::nullopt;
    return (*dict_)[key].cast<at::Tensor>();
  }
  std::optional<py::sequence> sequence(const char* key) const {
    if (!has(key) || !py::isinstance<py::sequence>((*dict_)[key])) return std::nullopt;
    return (*dict_)[key].cast<py::sequence>();
  }

 private:
  std::optional<py::dict> dict_;
};

// The first of two that is kept; else undefined where it will be; else none.
std::optional<at::Tensor> moment(const Options& kept, const char* one, const char* other, bool to_come) {
  if (auto found = kept.tensor(one)) return found;
  if (auto found = kept.tensor(other)) return found;
  return to_come ? std::optional(at::Tensor()) : std::nullopt;
}

ParameterState state_of(const Options& kept, const Options& group) {
  ParameterState state;
  const auto betas = group.sequence("betas");
  const bool adam = betas && betas->size() == 2;
  const bool with_momentum = group.number("momentum").value_or(0) != 0;
  const bool rmsprop = group.has("alpha") && group.has("momentum");
  state.first_moment = moment(kept, "exp_avg", "momentum_buffer", adam || with_momentum);
  state.second_moment = moment(kept, "exp_avg_sq", "square_avg", adam || rmsprop);
  if (const auto steps = kept.number("step")) state.steps = static_cast<std::int64_t>(*steps);
  if (!adam) return state;
  if (!state.steps) state.steps = 0;
  state.beta1 = (*betas)[0].cast<double>();
  state.beta2 = (*betas)[1].cast<double>();
  state.eps = group.number("eps");
  return state;
}

}  // namespace

PythonOptimizerState::PythonOptimizerState(const py::handle& optimizer) {
  const py::object states = py::getattr(optimizer, "state", py::dict());
  for (const py::handle& group : optimizer.attr("param_groups")) {
    const Options options(group);
    for (const py::handle& parameter : group["params"]) {
      const auto tensor = parameter.cast<at::Tensor>();
      const bool known = states.contains(parameter);
      const py::object kept = known ? py::object(states[parameter]) : py::object(py::none());
      parameters_.push_back(tensor);
      states_.emplace(tensor.unsafeGetTensorImpl(), state_of(Options(kept), options));
    }
  }
}

ParameterState PythonOptimizerState::of(const at::Tensor& parameter) const {
  const auto found = states_.find(parameter.unsafeGetTensorImpl());
  return found == states_.end() ? ParameterState{} : found->second;
}

}  // namespace gradmon
