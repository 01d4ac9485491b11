// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/python_objects.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <utility>

#include "hooks/device/cuda_totals.h"
#include "hooks/stats/readable.h"

namespace gradmon {
namespace {

namespace py = pybind11;

// The keys of the options and states that are read, made once: a plan reads each of them for each parameter.
struct Keys {
  PyObject* const betas = PyUnicode_InternFromString("betas");
  PyObject* const eps = PyUnicode_InternFromString("eps");
  PyObject* const alpha = PyUnicode_InternFromString("alpha");
  PyObject* const momentum = PyUnicode_InternFromString("momentum");
  PyObject* const maximize = PyUnicode_InternFromString("maximize");
  PyObject* const step = PyUnicode_InternFromString("step");
  PyObject* const exp_avg = PyUnicode_InternFromString("exp_avg");
  PyObject* const momentum_buffer = PyUnicode_InternFromString("momentum_buffer");
  PyObject* const exp_avg_sq = PyUnicode_InternFromString("exp_avg_sq");
  PyObject* const square_avg = PyUnicode_InternFromString("square_avg");
};

const Keys& keys() {
  static const Keys* const made = new Keys;  // lives as long as the interpreter
  return *made;
}

// The options of a parameter group, or the state of one parameter. Empty if the object is not a dict.
class DictView {
 public:
  explicit DictView(const py::handle& object) : dict_(PyDict_Check(object.ptr()) ? object.ptr() : nullptr) {}

  bool empty() const { return dict_ == nullptr || PyDict_Size(dict_) == 0; }
  // The value, if it is there and not None.
  py::handle find(PyObject* key) const {
    PyObject* const value = dict_ == nullptr ? nullptr : PyDict_GetItemWithError(dict_, key);
    return value == Py_None ? nullptr : value;
  }
  bool has(PyObject* key) const { return static_cast<bool>(find(key)); }
  // False if the value is not a Python number: reading a tensor might wait for a device.
  bool is_nonzero_number(PyObject* key) const {
    const py::handle value = find(key);
    const bool number = value && (PyFloat_Check(value.ptr()) || PyLong_Check(value.ptr()));
    return number && value.cast<double>() != 0;
  }
  // The value of a Python number, or of a tensor of one element in CPU memory.
  std::optional<double> number(PyObject* key) const {
    const py::handle value = find(key);
    return value ? number_of(value) : std::nullopt;
  }
  std::optional<std::pair<double, double>> pair(PyObject* key) const {
    const py::handle value = find(key);
    if (!value || !(PyTuple_Check(value.ptr()) || PyList_Check(value.ptr())) || py::len(value) != 2)
      return std::nullopt;
    const auto both = value.cast<py::sequence>();
    const auto one = number_of(both[0]), other = number_of(both[1]);
    return one && other ? std::optional(std::pair(*one, *other)) : std::nullopt;
  }
  std::optional<at::Tensor> tensor(PyObject* key) const {
    const py::handle value = find(key);
    if (!value || !THPVariable_Check(value.ptr())) return std::nullopt;
    return THPVariable_Unpack(value.ptr());
  }

 private:
  static std::optional<double> number_of(const py::handle& value) {
    if (PyFloat_Check(value.ptr()) || PyLong_Check(value.ptr())) return value.cast<double>();
    if (!THPVariable_Check(value.ptr())) return std::nullopt;
    const at::Tensor& tensor = THPVariable_Unpack(value.ptr());
    if (!tensor.is_cpu() || tensor.numel() != 1) return std::nullopt;
    return tensor.item<double>();
  }

  PyObject* dict_;  // borrowed
};

// The options of a parameter group that hold for all its parameters.
struct GroupOptions {
  explicit GroupOptions(const DictView& group)
      : adam(group.has(keys().betas)),
        rmsprop(group.has(keys().alpha) && group.has(keys().momentum)),
        momentum(group.is_nonzero_number(keys().momentum)),
        maximize(group.is_nonzero_number(keys().maximize)),
        betas(group.pair(keys().betas)),
        eps(group.number(keys().eps)),
        view(group) {}

  bool adam, rmsprop, momentum, maximize;
  std::optional<std::pair<double, double>> betas;
  std::optional<double> eps;
  DictView view;
};

// The tensor under the first key that is present. Otherwise an undefined tensor if the moment will still
// come, or nullopt.
std::optional<at::Tensor> moment(const DictView& kept, PyObject* one, PyObject* other, bool to_come) {
  if (auto found = kept.tensor(one)) return found;
  if (auto found = kept.tensor(other)) return found;
  return to_come ? std::optional(at::Tensor()) : std::nullopt;
}

// No steps: the moments will still come.
std::optional<AdamStep> adam_step(const DictView& kept, const GroupOptions& group) {
  if (!group.betas || !group.eps) return std::nullopt;
  AdamStep step{group.betas->first, group.betas->second, *group.eps};
  const DictView& counted = kept.has(keys().step) ? kept : group.view;
  if (const auto steps = counted.number(keys().step)) {
    step.steps = *steps;
  } else if (auto on_device = counted.tensor(keys().step); on_device && on_device->numel() == 1) {
    step.device_steps = std::move(*on_device);
  } else if (kept.has(keys().exp_avg)) {
    return std::nullopt;
  }
  return step;
}

ParameterState state_of(const DictView& kept, const GroupOptions& group) {
  ParameterState state;
  const bool to_come = kept.empty();  // The first step makes all of a parameter's state.
  state.first_moment =
      moment(kept, keys().exp_avg, keys().momentum_buffer, to_come && (group.adam || group.momentum));
  state.second_moment =
      moment(kept, keys().exp_avg_sq, keys().square_avg, to_come && (group.adam || group.rmsprop));
  if (group.adam) state.adam = adam_step(kept, group);
  state.maximize = group.maximize;
  return state;
}

// The state of each parameter, from the optimizer or from a wrapped one (ZeroRedundancyOptimizer, a schedule
// in the shape of an optimizer). Copied into a map by identity: a lookup in the dict by tensor would run
// Python code, and so signal handlers, which may raise.
class StateByParameter {
 public:
  explicit StateByParameter(const py::handle& optimizer) {
    add(py::getattr(optimizer, "state", py::none()));
    for (const char* name : {"optim", "optimizer"}) {
      const py::object wrapped = py::getattr(optimizer, name, py::none());
      if (!wrapped.is_none()) add(py::getattr(wrapped, "state", py::none()));
    }
  }

  // Valid as long as this object.
  py::handle of(const py::handle& parameter) const {
    const auto found = values_.find(parameter.ptr());
    return found == values_.end() ? Py_None : found->second.ptr();
  }

 private:
  void add(const py::object& states) {
    if (!PyDict_Check(states.ptr())) return;
    PyObject* parameter = nullptr;
    PyObject* value = nullptr;
    values_.reserve(values_.size() + static_cast<std::size_t>(PyDict_Size(states.ptr())));
    for (Py_ssize_t place = 0; PyDict_Next(states.ptr(), &place, &parameter, &value) != 0;)
      values_.emplace(parameter, py::reinterpret_borrow<py::object>(value));
  }

  std::unordered_map<const PyObject*, py::object> values_;
};

// The scale that a scaler passes to a fused optimizer around its step. Waits for the device, so it is not
// read during the capture of a graph: then no row is read either.
std::optional<double> read_grad_scale(const py::handle& optimizer) {
  const py::object scale = py::getattr(optimizer, "grad_scale", py::none());
  if (!THPVariable_Check(scale.ptr())) return std::nullopt;
  const auto tensor = scale.cast<at::Tensor>();
  if (tensor.numel() != 1 || !why_captured(tensor.device()).empty()) return std::nullopt;
  return tensor.item<double>();
}

// Attributes of an optimizer that updates master copies: the lists of lists of parameters, and of their
// copies.
struct MasterLists {
  const char* parameters;
  const char* masters;
};
constexpr MasterLists kMasterLists[] = {{"float16_groups", "fp32_from_float16_groups"},  // Megatron's
                                        {"fp16_groups", "fp32_from_fp16_groups"}};       // apex'

// Calls `body` with each parameter that has a master copy, and that copy.
template <typename Body>
void for_each_with_master(const py::handle& optimizer, Body&& body) {
  for (const MasterLists& lists : kMasterLists) {
    const py::object groups = py::getattr(optimizer, lists.parameters, py::none());
    const py::object groups_of_masters = py::getattr(optimizer, lists.masters, py::none());
    if (!PyList_Check(groups.ptr()) || !PyList_Check(groups_of_masters.ptr())) continue;
    auto of_masters = groups_of_masters.begin();
    for (const py::handle& group : groups) {
      if (of_masters == groups_of_masters.end()) break;
      const py::handle masters = *of_masters++;
      auto master = masters.begin();
      for (const py::handle& parameter : group) {
        if (master == masters.end()) break;
        body(parameter, *master++);
      }
    }
  }
}

// The piece of a tensor with the carrier's layout. Undefined for another layout.
at::Tensor cut(const at::Tensor& tensor, const CarriedPiece& piece) {
  if (!tensor.defined() || piece.numel < 0) return tensor;
  if (!tensor.is_contiguous() || tensor.numel() != piece.carrier.numel()) return {};
  return tensor.detach().view(-1).narrow(0, piece.start, piece.numel);
}

std::optional<at::Tensor> cut(const std::optional<at::Tensor>& moment, const CarriedPiece& piece) {
  if (!moment || !moment->defined()) return moment;
  at::Tensor found = cut(*moment, piece);
  return found.defined() ? std::optional(std::move(found)) : std::nullopt;
}

at::Tensor gradient_of_carrier(const at::Tensor& carrier) {
  const py::object decoupled = py::getattr(py::cast(carrier), "decoupled_grad", py::none());
  return THPVariable_Check(decoupled.ptr()) ? decoupled.cast<at::Tensor>() : carrier.grad();
}

}  // namespace

namespace {

// Memory for the parameters of an update, reused: to allocate it anew has malloc() tidy up its free memory,
// which costs the program more than the copy.
thread_local std::vector<at::Tensor> spare_parameters;

// Calls `body` with each parameter of the optimizer, as an object and as a tensor.
template <typename Body>
void for_each_parameter(const py::handle& optimizer, Body&& body) {
  for (const py::handle& group : optimizer.attr("param_groups")) {
    for (const py::handle& parameter : group["params"]) {
      if (!THPVariable_Check(parameter.ptr())) throw py::type_error("an optimizer's parameter is no tensor");
      body(group, parameter, THPVariable_Unpack(parameter.ptr()));
    }
  }
}

}  // namespace

std::vector<at::Tensor> parameters_of(const py::handle& optimizer) {
  std::vector<at::Tensor> parameters;
  for_each_parameter(optimizer, [&](const py::handle&, const py::handle&, const at::Tensor& parameter) {
    parameters.push_back(parameter);
  });
  for_each_with_master(optimizer, [&](const py::handle& parameter, const py::handle&) {
    parameters.push_back(parameter.cast<at::Tensor>());
  });
  return parameters;
}

std::uint64_t versions_of(const py::handle& optimizer) {
  std::uint64_t sum = 0;
  for_each_parameter(optimizer, [&](const py::handle&, const py::handle&, const at::Tensor& parameter) {
    sum += version_of(parameter).value_or(0);
  });
  return sum;
}

PythonOptimizerState::PythonOptimizerState(const py::handle& optimizer, double gradient_scale, bool moments)
    : parameters_(std::exchange(spare_parameters, {})), gradient_scale_(gradient_scale) {
  if (const auto scale = read_grad_scale(optimizer)) gradient_scale_ = *scale;
  std::optional<StateByParameter> kept;
  if (moments) kept.emplace(optimizer);
  std::optional<GroupOptions> options;
  const void* group_of_options = nullptr;
  for_each_parameter(
      optimizer, [&](const py::handle& group, const py::handle& parameter, const at::Tensor& tensor) {
        add(parameter, tensor);
        if (!moments) return;
        if (std::exchange(group_of_options, group.ptr()) != group.ptr()) options.emplace(DictView(group));
        states_.emplace(tensor.unsafeGetTensorImpl(), state_of(DictView(kept->of(parameter)), *options));
      });
  for_each_with_master(optimizer, [&](const py::handle& parameter, const py::handle& master) {
    const auto tensor = parameter.cast<at::Tensor>();
    add(parameter, tensor);
    states_.emplace(tensor.unsafeGetTensorImpl(), of(master.cast<at::Tensor>()));
  });
}

PythonOptimizerState::~PythonOptimizerState() {
  parameters_.clear();
  if (parameters_.capacity() > spare_parameters.capacity()) spare_parameters.swap(parameters_);
}

std::vector<CarriedPiece> carried(const PieceTuples& pieces) {
  std::vector<CarriedPiece> found;
  found.reserve(pieces.size());
  for (const auto& [parameter, carrier, start, numel] : pieces)
    found.push_back({parameter, carrier, start, numel});
  return found;
}

PythonOptimizerState::PythonOptimizerState(const py::handle& optimizer,
                                           const std::vector<CarriedPiece>& pieces, UpdateReads reads)
    : PythonOptimizerState(optimizer) {
  set_reads(reads);
  const auto of_carriers = std::exchange(states_, {});
  parameters_.clear();
  main_grads_.clear();
  for (const CarriedPiece& piece : pieces) {
    const auto found = of_carriers.find(piece.carrier.unsafeGetTensorImpl());
    if (found == of_carriers.end() || piece.numel == 0) continue;
    const void* parameter = piece.parameter.unsafeGetTensorImpl();
    ParameterState state = found->second;
    state.first_moment = cut(state.first_moment, piece);
    state.second_moment = cut(state.second_moment, piece);
    parameters_.push_back(piece.parameter);
    states_.emplace(parameter, std::move(state));
    values_.emplace(parameter, cut(piece.carrier.detach(), piece));
    main_grads_.emplace(parameter, cut(gradient_of_carrier(piece.carrier), piece));
  }
}

at::Tensor PythonOptimizerState::value_of(const at::Tensor& parameter) const {
  const auto found = values_.find(parameter.unsafeGetTensorImpl());
  return found == values_.end() ? parameter : found->second;
}

void PythonOptimizerState::add(const py::handle& parameter, const at::Tensor& tensor) {
  parameters_.push_back(tensor);
  if (auto main_grad = find_main_grad(parameter); main_grad.defined())
    main_grads_.emplace(tensor.unsafeGetTensorImpl(), std::move(main_grad));
}

ParameterState PythonOptimizerState::of(const at::Tensor& parameter) const {
  const auto found = states_.find(parameter.unsafeGetTensorImpl());
  return found == states_.end() ? ParameterState{} : found->second;
}

at::Tensor PythonOptimizerState::gradient_of(const at::Tensor& parameter) const {
  const auto found = main_grads_.find(parameter.unsafeGetTensorImpl());
  return found == main_grads_.end() ? parameter.grad() : found->second;
}

EarlyGradients::EarlyGradients(const EarlyTuples& passed, double gradient_scale)
    : gradient_scale_(gradient_scale) {
  set_reads(UpdateReads::gradients_and_moments);
  for (const auto& [parameter, gradient, moment] : passed) {
    parameters_.push_back(parameter);
    passed_.emplace(parameter.unsafeGetTensorImpl(), std::pair(gradient, moment.value_or(at::Tensor())));
  }
}

ParameterState EarlyGradients::of(const at::Tensor& parameter) const {
  const auto found = passed_.find(parameter.unsafeGetTensorImpl());
  return found == passed_.end() ? ParameterState{} : ParameterState{found->second.second, {}, {}};
}

at::Tensor EarlyGradients::gradient_of(const at::Tensor& parameter) const {
  const auto found = passed_.find(parameter.unsafeGetTensorImpl());
  return found == passed_.end() ? at::Tensor() : found->second.first;
}

}  // namespace gradmon
