// SPDX-License-Identifier: Apache-2.0
// Reads the objects of a Python program for the monitor: models, parameters, forwards, optimizers, arrays and
// tensors that wrap others.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gradmon/forward_entry.h"
#include "hooks/rows/optimizer_state.h"
#include "hooks/rows/watched_model.h"

namespace gradmon {

// --- Models ---

// A module's identity: its address, which is unique while the module is watched.
inline const void* identity_of(const pybind11::handle& module) { return module.ptr(); }

// `listed`: None, or the parameters that replace those of the model, as (name, tensor, sharding or None);
// `sharding` has the attributes of ParameterSharding (gradmon/sharded/listing.py). `plain_scope`: None, or
// WatchedModule::scope. `source`: for the parameters that need gradients.
//
// Lists each parameter under all its names: a tied one once for each module that has it. With the GIL;
// throws what Python throws.
WatchedModel described_model(const pybind11::handle& model, const pybind11::handle& listed,
                             const pybind11::handle& plain_scope, UnreducedSource source);

// True if the parameter is split over the tensor parallel group: Megatron marks it so. With the GIL.
bool is_split(const at::Tensor& parameter);

// A parameter's post-accumulate hook that runs before other hooks of that kind (torch >= 2.1).
//
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

// The tensor in which a framework accumulates a parameter's gradient instead of `grad`.
//
// The parameter's `main_grad`; undefined if missing, or if it is no tensor. With the GIL.
at::Tensor find_main_grad(const pybind11::handle& parameter);
// The `main_grad`, and true if a fused kernel has added to it (Megatron's `grad_added_to_main_grad`). Any
// thread: takes the GIL.
MainGradient find_main_gradient(const pybind11::object& parameter);

// --- The inputs and outputs of modules ---

// The tensors in a value: a tensor, or nested tuples, lists, dicts and dataclasses. Any other value
// counts as a place. With the GIL; throws what Python throws.
ForwardTensors tensors_in(const pybind11::handle& value);
// The tensors in a module's arguments: first the positional ones, then the keyword arguments, by name.
// Keyword arguments do not count as places.
ForwardTensors tensors_in_call(const pybind11::handle& inputs, const pybind11::dict& keywords);

// --- Optimizers ---

// The parameters of all groups, then those with master copies. Waits for no device. With the GIL; throws
// what Python throws.
std::vector<at::Tensor> parameters_of(const pybind11::handle& optimizer);
// The sum of the versions of the optimizer's parameters: another sum means that they were written. Torch
// counts no version of an inference tensor.
std::uint64_t versions_of(const pybind11::handle& optimizer);
// The identities of the values of the dicts (or mappings), of the further tensors, of their contents and of
// their main_grads, as bytes. For ModelParts.
pybind11::bytes part_identities(const std::vector<pybind11::object>& holders,
                                const std::vector<pybind11::object>& further);

// A run of a parameter's elements in a tensor that an optimizer updates in its place.
struct CarriedPiece {
  at::Tensor parameter;    // the user's
  at::Tensor carrier;      // one of the optimizer's parameters
  std::int64_t start = 0;  // of the piece, in the flattened carrier
  std::int64_t numel = 0;  // of the piece; negative: the carrier is a copy of the whole parameter
};

// Pieces as Python passes them: parameter, carrier, start, numel.
using PieceTuples = std::vector<std::tuple<at::Tensor, at::Tensor, std::int64_t, std::int64_t>>;
std::vector<CarriedPiece> carried(const PieceTuples& pieces);

// The constructor reads everything with the GIL held; the other members do not need the GIL.
//
// Moments are found by key, not by class: in `state[parameter]` the first moment is exp_avg or
// momentum_buffer, the second exp_avg_sq or square_avg. If a moment is missing, the group's options (betas;
// momentum; alpha, for RMSprop) decide if it will come. For torch's own four optimizers the moments are those
// of LibtorchOptimizerState. AdamStep is set if the group has betas and eps, and the state or else the group
// has `step`: numbers or tensors; betas and eps on a device are not read.
//
// A parameter with a master copy (Megatron's float16_groups, apex' fp16_groups) has the state of its copy. A
// parameter's `main_grad`, if it exists, is its gradient. The optimizer's `grad_scale` is the factor that it
// divides by itself; reading a scale on a device waits for the device.
class PythonOptimizerState : public OptimizerState {
 public:
  // `gradient_scale`: the factor that the optimizer divides by itself, if it has no `grad_scale`. `moments`:
  // false if nobody calls of(). Throws what Python throws.
  explicit PythonOptimizerState(const pybind11::handle& optimizer, double gradient_scale = 1,
                                bool moments = true);

  // The user's parameters in place of the tensors that the optimizer updates for them. Skips pieces whose
  // carrier is now in none of its parameter groups; a carrier's gradient is its `decoupled_grad`, if it
  // exists, else its `grad`. Everything is read as a view.
  PythonOptimizerState(const pybind11::handle& optimizer, const std::vector<CarriedPiece>& pieces,
                       UpdateReads reads = UpdateReads::everything);
  ~PythonOptimizerState() override;
  PythonOptimizerState(const PythonOptimizerState&) = delete;
  PythonOptimizerState& operator=(const PythonOptimizerState&) = delete;

  ParameterState of(const at::Tensor& parameter) const override;
  at::Tensor value_of(const at::Tensor& parameter) const override;
  at::Tensor gradient_of(const at::Tensor& parameter) const override;
  double gradient_scale() const override { return gradient_scale_; }
  // See parameters_of().
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  void add(const pybind11::handle& parameter, const at::Tensor& tensor);

  std::vector<at::Tensor> parameters_;
  std::unordered_map<const void*, ParameterState> states_;
  std::unordered_map<const void*, at::Tensor> main_grads_;
  std::unordered_map<const void*, at::Tensor> values_;  // of parameters that are updated in another tensor
  double gradient_scale_;
};

// Parameter, reduced gradient, first moment (None: still to come).
using EarlyTuples = std::vector<std::tuple<at::Tensor, at::Tensor, std::optional<at::Tensor>>>;

// Gradients and first moments that an adapter passes before an engine overwrites them. No copy.
class EarlyGradients : public OptimizerState {
 public:
  // `gradient_scale`: the factor in the gradients.
  EarlyGradients(const EarlyTuples& passed, double gradient_scale);

  ParameterState of(const at::Tensor& parameter) const override;
  at::Tensor gradient_of(const at::Tensor& parameter) const override;
  double gradient_scale() const override { return gradient_scale_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  std::vector<at::Tensor> parameters_;
  std::unordered_map<const void*, std::pair<at::Tensor, at::Tensor>> passed_;  // gradient, moment
  const double gradient_scale_;
};

// --- Tensors and arrays ---

// The values of an array of any library, read by its own protocols; imports no library. In this order: a
// torch tensor; Python's buffer protocol (NumPy; also read-only arrays); DLPack, for memory that the CPU can
// read (JAX); a two-byte or one-byte view of ml_dtypes' types; asnumpy() (MindSpore) and __array__(), which
// copy. A DLPack capsule itself is an array, too.
//
// With the GIL. An Exception of the array's own methods becomes the reason; others (KeyboardInterrupt) pass
// through.
class PythonArray {
 public:
  explicit PythonArray(const pybind11::handle& array);
  ~PythonArray();
  PythonArray(const PythonArray&) = delete;
  PythonArray& operator=(const PythonArray&) = delete;

  // The tensor, which lives as long as this object, or the reason why it is missing.
  const tl::expected<at::Tensor, std::string>& tensor() const { return tensor_; }

 private:
  using Read = tl::expected<at::Tensor, std::string>;

  Read read(const pybind11::handle& array);
  Read read_buffer(const pybind11::handle& array, const char* type_name = nullptr);
  Read read_dlpack(const pybind11::handle& array);
  Read read_capsule(const pybind11::object& capsule);
  Read read_view(const pybind11::handle& array);
  Read read_copy(const pybind11::handle& array);

  void release_buffer();

  pybind11::object owner_;  // of the memory: a capsule, a view or a copy
  Py_buffer buffer_{};
  bool holds_buffer_ = false;
  Read tensor_;  // Keep last: a view of the memory.
};

// Lets hooks read the content of a wrapper, by attributes alone: `_local_tensor` of a DTensor, the result of
// a waited AsyncCollectiveTensor, and numbers of low precision. Any other class is not applicable.
void read_python_wrappers();
// Forgets the placements seen so far, which hold device meshes. With the GIL.
void forget_python_wrappers();

// --- gradmon.observe(): a tensor within a forward, in eager code and within a graph of torch.compile ---
//
//   gradmon::tap(Tensor x, Tensor(a!) token, int number) -> ()
//
// is the operator in graphs. A compiler keeps the operator, because it declares a write to `token`, which it
// does not make. While no monitor collects, it costs one load. `number` is observation_number().

enum class GradientMode : bool { disabled, enabled };

// Identifies a name, and the gradient mode in which the forward was traced: compiled forwards themselves run
// without gradients. The same in every process. Any thread.
std::int64_t observation_number(const std::string& name, GradientMode gradients);

// In eager code. Any thread, with the GIL.
void observe_now(const at::Tensor& x, const std::string& name);

// --- Modules within graphs of torch.compile (gradmon/_graph_hooks.py) ---
//
//   gradmon::call(Tensor x, Tensor module, int position) -> Tensor
//   gradmon::entered(Tensor[] inputs, Tensor module, Tensor call, str layout, bool gradients, bool training)
//   gradmon::left(Tensor[] outputs, Tensor module, Tensor call, str layout, bool gradients)
//   gradmon::gradient(Tensor x, Tensor call, str layout, int index, bool of_output)
//
// call() numbers one call at run time (forward_entry.h); the graph hands the number to the others. It is no
// effect, so checkpointing may run it again. The others have an effect, in their order, and no result: torch
// 2.13 cannot save a result of such an operator within checkpointed parts of a graph. `module`: its number, a
// tensor, so that equal modules share one graph. `layout`: "lone", or the number of places and then, for each
// tensor, ";PLACE=KEY", with %25 and %3B for % and ; in a key. `gradients`: the graph was traced with
// gradients enabled. While no monitor collects, each costs one load.

// The number of a module, by its identity. Any thread.
std::int64_t graph_module_number(const void* module);
// The numbers of the modules that a graph has entered since the last call. Any thread.
std::vector<std::int64_t> take_entered_modules();

}  // namespace gradmon
