// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/python_objects.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hooks/rows/target_names.h"
#include "runtime/python/guarded.h"

namespace gradmon {

namespace py = pybind11;

namespace {

// None if the object has no such attribute, or raises. Unlike py::getattr() it makes no exception where there
// is none, which would take longer than all else that is done for a parameter.
py::object attribute(const py::handle& object, PyObject* name) {
  PyObject* found = nullptr;
#if PY_VERSION_HEX >= 0x030D0000
  const int status = PyObject_GetOptionalAttr(object.ptr(), name, &found);
#else
  const int status = _PyObject_LookupAttr(object.ptr(), name, &found);
#endif
  if (status < 0) PyErr_Clear();
  return found == nullptr ? py::none() : py::reinterpret_steal<py::object>(found);
}

}  // namespace

at::Tensor find_main_grad(const py::handle& parameter) {
  static PyObject* const name = PyUnicode_InternFromString("main_grad");
  const py::object found = attribute(parameter, name);
  return THPVariable_Check(found.ptr()) ? found.cast<at::Tensor>() : at::Tensor();
}

py::bytes part_identities(const std::vector<py::object>& holders, const std::vector<py::object>& further) {
  static PyObject* const main_grad = PyUnicode_InternFromString("main_grad");
  std::string found;
  const auto add = [&](const void* identity) {
    found.append(reinterpret_cast<const char*>(&identity), sizeof(identity));
  };
  const auto add_part = [&](const py::handle& part) {
    add(part.ptr());
    // torch.utils.swap_tensors() leaves the object and changes its content.
    if (THPVariable_Check(part.ptr())) add(THPVariable_Unpack(part.ptr()).unsafeGetTensorImpl());
    if (const py::object one = attribute(part, main_grad); !one.is_none()) add(one.ptr());
  };
  for (const py::object& holder : holders) {
    if (!PyDict_Check(holder.ptr())) {  // of a scripted module
      for (const py::handle& part : holder.attr("values")()) add_part(part);
      continue;
    }
    PyObject* name = nullptr;
    PyObject* part = nullptr;
    // Held, because an attribute of a program's class may run code, which may change the dict.
    for (Py_ssize_t place = 0; PyDict_Next(holder.ptr(), &place, &name, &part) != 0;)
      add_part(py::reinterpret_borrow<py::object>(part));
  }
  for (const py::object& part : further) add_part(part);
  return found;
}

MainGradient find_main_gradient(const py::object& parameter) {
  static PyObject* const name = PyUnicode_InternFromString("grad_added_to_main_grad");
  const py::gil_scoped_acquire held;
  const PythonCodeInHooks in_hooks;  // a parameter's class may compute its attributes
  const py::object fused_accumulation = attribute(parameter, name);
  return {find_main_grad(parameter), fused_accumulation.ptr() == Py_True};
}

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

ForwardTensors tensors_in(const py::handle& value) {
  Search search;
  search.add(value);
  search.found.lone = THPVariable_Check(value.ptr());
  return std::move(search.found);
}

ForwardTensors tensors_in_call(const py::handle& inputs, const py::dict& keywords) {
  Search search;
  search.add(inputs);
  const std::size_t places = search.found.places;
  for (const auto& [name, value] : keywords) search.add(value, py::str(name).cast<std::string>());
  search.found.places = places;
  return std::move(search.found);
}

namespace {

namespace py = pybind11;

// The names of a model's parts without the `module` of the wrappers around all of it.
class NamesWithin {
 public:
  explicit NamesWithin(const py::handle& model)
      : front_(py::module_::import("gradmon._wrappers").attr("part_in_front")(model).cast<std::string>()),
        copies_(py::type::of(model).attr("__name__").cast<std::string>() == "DataParallel") {}

  std::string of(const std::string& name) const {
    const std::string as_prefix = name + ".";
    std::size_t wrapped = 0;  // length of what `name` has in common with the part in front
    if (front_.compare(0, as_prefix.size(), as_prefix) == 0) wrapped = name.size();
    if (name.compare(0, front_.size(), front_) == 0) wrapped = front_.size();
    std::string kept;
    for (std::size_t begin = 0; begin < wrapped;) {
      const std::size_t end = std::min(name.find('.', begin), name.size());
      const std::string part = name.substr(begin, end - begin);
      if (part != "module") kept += kept.empty() || kept.back() == '.' ? part : "." + part;
      begin = end + 1;
    }
    const std::string rest = name.substr(wrapped);
    return kept.empty() || rest.empty() ? kept + rest : kept + "." + rest;
  }

  // The model within torch.nn.DataParallel does not run; copies of it do.
  bool never_runs(const std::string& name) const { return copies_ && name == "module"; }

 private:
  std::string front_;
  bool copies_;
};

// Adds the other names of tied parameters: named_parameters() lists each parameter under its first name
// only.
class OtherNames {
 public:
  explicit OtherNames(WatchedModel& chunk) : chunk_(chunk) {
    for (std::size_t i = 0; i < chunk.parameters.size(); ++i) {
      listed_.insert(unwrapped_name(chunk.parameters[i].name));
      places_.emplace(chunk.parameters[i].tensor->unsafeGetTensorImpl(), i);
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

// Returns true if the module is an embedding. vocab_start_index: Megatron's VocabParallelEmbedding.
bool embeds(const py::handle& module) {
  return py::hasattr(module, "num_embeddings") || py::hasattr(module, "vocab_start_index");
}

std::optional<bool> find_causal(const py::handle& module) {
  const py::object said = py::getattr(module, "is_causal", py::none());
  return py::isinstance<py::bool_>(said) ? std::optional(said.cast<bool>()) : std::nullopt;
}

// False for Megatron's experts (`allreduce` is False) and for weights that its GTP splits, for what DeepSpeed
// partitions (ZeRO stage 3: `ds_id`), for a DTensor that is not whole on each rank, and for a tensor whose
// `placements` are of another kind.
bool is_replicated(const py::handle& parameter) {
  if (py::object(py::getattr(parameter, "allreduce", py::none())).is(py::bool_(false))) return false;
  if (py::getattr(parameter, "is_gtp_weight_remat", py::none()).is(py::bool_(true))) return false;
  if (py::hasattr(parameter, "ds_id")) return false;
  const py::object placements = py::getattr(parameter, "placements", py::none());
  if (placements.is_none()) return true;
  try {
    for (const py::handle& placement : placements) {
      if (!placement.attr("is_replicate")().cast<bool>()) return false;
    }
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Copies may be destroyed on any thread, without the GIL.
template <typename Held>
std::shared_ptr<Held> shared(Held object) {
  return {new Held(std::move(object)), [](Held* held) {
            if (Py_IsInitialized() == 0) return;  // Python has ended: its objects are gone.
            const py::gil_scoped_acquire ours;
            delete held;
          }};
}

at::Tensor tensor_or_none(const py::handle& value) {
  return THPVariable_Check(value.ptr()) ? value.cast<at::Tensor>() : at::Tensor();
}

std::optional<ElementRun> run_of(const py::object& run) {
  if (run.is_none()) return std::nullopt;
  const auto [begin, count] = run.cast<std::pair<std::int64_t, std::int64_t>>();
  return ElementRun{begin, count};
}

ScopeText read_scope(const py::object& text) {
  return text.is_none() ? nullptr : make_scope(text.cast<std::string>());
}

std::shared_ptr<const ParameterSharding> read_sharding(const py::handle& described) {
  ParameterSharding sharding;
  sharding.unit = reinterpret_cast<const void*>(described.attr("unit").cast<std::uintptr_t>());
  if (py::object unsharded = described.attr("unsharded"); !unsharded.is_none()) {
    sharding.unsharded = [call = shared(std::move(unsharded))] {
      const py::gil_scoped_acquire ours;
      const auto both = call_in_hook([&] { return (*call)(); }).cast<std::pair<py::object, py::object>>();
      return UnshardedParameter{tensor_or_none(both.first), tensor_or_none(both.second)};
    };
  }
  sharding.unsharded_run = run_of(described.attr("unsharded_run"));
  sharding.unsharded_sizes = described.attr("unsharded_sizes").cast<std::vector<std::int64_t>>();
  sharding.run = run_of(described.attr("run"));
  sharding.unreduced_scope = read_scope(described.attr("unreduced_scope"));
  sharding.scope = read_scope(described.attr("scope"));
  sharding.no_unreduced = described.attr("no_unreduced").cast<std::string>();
  return std::make_shared<const ParameterSharding>(std::move(sharding));
}

std::function<void()> hook_first(const py::object& parameter, const std::function<void()>& accumulated) {
  const py::gil_scoped_acquire ours;
  // An empty one counts: torch calls it as long as the parameter lives.
  if (py::getattr(parameter, "_post_accumulate_grad_hooks", py::none()).is_none()) return nullptr;
  const py::cpp_function hook([accumulated](const py::handle&) {
    const py::gil_scoped_release others_run;
    accumulated();
  });
  const auto hooked = shared(call_in_hook([&] { return put_first(parameter, hook); }));
  return [hooked] {
    const py::gil_scoped_acquire ours_again;
    hooked->take_off();
  };
}

// False: it is no tensor. A program may put anything into a module.
bool add_parameter(WatchedModel& chunk, const std::string& name, const py::object& parameter) {
  if (!THPVariable_Check(parameter.ptr())) return false;
  const auto object = shared(parameter);
  chunk.parameters.push_back({name, 0, HeldTensor(object, THPVariable_Unpack(parameter.ptr()))});
  chunk.parameters.back().replicated = is_replicated(parameter);
  if (py::hasattr(parameter, "register_post_accumulate_grad_hook"))
    chunk.parameters.back().hook_first = [object](const std::function<void()>& accumulated) {
      return hook_first(*object, accumulated);
    };
  if (py::hasattr(parameter, "main_grad"))
    chunk.parameters.back().main_gradient = [object] { return find_main_gradient(*object); };
  return true;
}

}  // namespace

WatchedModel described_model(const py::handle& model, const py::handle& listed, const py::handle& plain_scope,
                             UnreducedSource source) {
  WatchedModel chunk;
  const NamesWithin names(model);
  if (listed.is_none()) {
    for (const py::handle& item : model.attr("named_parameters")()) {
      const auto [name, parameter] = item.cast<std::pair<std::string, py::object>>();
      add_parameter(chunk, names.of(name), parameter);
    }
  } else {
    for (const py::handle& item : listed) {
      const auto [name, parameter, sharding] = item.cast<std::tuple<std::string, py::object, py::object>>();
      if (!add_parameter(chunk, names.of(name), parameter) || sharding.is_none()) continue;
      chunk.parameters.back().sharding = read_sharding(sharding);
      if (chunk.parameters.back().sharding->unit != nullptr) chunk.parameters.back().replicated = false;
    }
  }
  for (WatchedParameter& parameter : chunk.parameters) parameter.gradient_source = source;
  const ScopeText plain = read_scope(py::reinterpret_borrow<py::object>(plain_scope));
  const auto unseen = py::module_::import("gradmon._compiled")
                          .attr("unseen")(model.attr("modules")())
                          .cast<std::set<std::uintptr_t>>();  // ids are addresses
  OtherNames other_names(chunk);
  for (const py::handle& item : model.attr("named_modules")()) {
    const auto [name, module] = item.cast<std::pair<std::string, py::object>>();
    const bool within = unseen.count(reinterpret_cast<std::uintptr_t>(module.ptr())) > 0;
    other_names.add(names.of(name), module);
    if (names.never_runs(name)) continue;
    chunk.modules.push_back(
        {names.of(name), 0, identity_of(module), find_causal(module), embeds(module), plain, within});
  }
  chunk.modules = without_wrappers(std::move(chunk.modules));
  return chunk;
}

bool is_split(const at::Tensor& parameter) {
  return py::bool_(py::getattr(py::cast(parameter), "tensor_model_parallel", py::bool_(false)));
}

}  // namespace gradmon
