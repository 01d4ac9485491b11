// SPDX-License-Identifier: Apache-2.0
// Shows the inputs and outputs of modules to the monitor. C++ modules have no hooks, so write
// at the place of each call
//
//   auto y = gradmon::observe(linear)(x);         // instead of linear->forward(x)
//   auto z = gradmon::observe(sequential)(y);     // and each of its children
//   gradmon::tap("scores", scores);               // a tensor that is no module's output
//
// Observe the root of the model, too: its forwards count the micro steps, and distinguish an evaluation from
// a forward under reentrant checkpointing. Any module with one forward can be observed, also a module holder
// and an AnyModule. Tensors are found in arguments and results, and in optionals, tuples, pairs, arrays,
// ranges and maps of them, at any depth. Other types pass through.
//
// An observed call computes and throws what forward() does, and keeps no tensor. While no monitor
// collects, it costs one load and a branch. Any thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gradmon/forward_entry.h"
#include "gradmon/tensors_within.h"

namespace torch::nn {
class Module;
class AnyModule;
class SequentialImpl;
template <typename Contained>
class ModuleHolder;
}  // namespace torch::nn

namespace gradmon {

// One forward, from its arguments to its result or its exception.
class ForwardPassage {
 public:
  ForwardPassage(const void* module, ModuleMode mode, const ForwardTensors& inputs) : module_(module) {
    forward_entry::entered(module_, mode, inputs);
  }
  ~ForwardPassage() {
    if (module_) forward_entry::abandoned(module_);
  }
  ForwardPassage(const ForwardPassage&) = delete;
  ForwardPassage& operator=(const ForwardPassage&) = delete;

  void leave(const ForwardTensors& outputs) { forward_entry::left(std::exchange(module_, nullptr), outputs); }

 private:
  const void* module_;
};

// The result of observe(): a reference to the module, to be called at once.
template <typename M>
class ObservedModule {
 public:
  explicit ObservedModule(M& module) : module_(module) {}

  template <typename... Arguments>
  decltype(auto) operator()(Arguments&&... arguments) {
    if constexpr (kGivesAny) {
      return forward(std::forward<Arguments>(arguments)...);
    } else {
      if (!forward_entry::open()) return module_.forward(std::forward<Arguments>(arguments)...);
      return pass(std::forward<Arguments>(arguments)...);
    }
  }

  // For a Sequential or an AnyModule, where the caller names the type of the result.
  template <typename Result = at::Tensor, typename... Arguments>
  Result forward(Arguments&&... arguments) {
    static_assert(kGivesAny, "call the observed module itself");
    if (!forward_entry::open()) {
      return module_.template forward<Result>(std::forward<Arguments>(arguments)...);
    }
    if constexpr (kSequential) {
      if (module_.is_empty()) return module_.template forward<Result>(std::forward<Arguments>(arguments)...);
      return pass_children<Result>(std::forward<Arguments>(arguments)...);
    } else {
      return pass_any(module_, std::forward<Arguments>(arguments)...).template get<Result>();
    }
  }

 private:
  static constexpr bool kSequential = std::is_base_of_v<torch::nn::SequentialImpl, M>;
  static constexpr bool kGivesAny = kSequential || std::is_same_v<M, torch::nn::AnyModule>;

  static ModuleMode module_mode(const torch::nn::Module& module) { return mode<torch::nn::Module>(module); }
  template <typename Base>  // a template, because Module is incomplete here
  static ModuleMode mode(const Base& module) {
    return module.is_training() ? ModuleMode::training : ModuleMode::evaluation;
  }

  template <typename... Arguments>
  decltype(auto) pass(Arguments&&... arguments) {
    const torch::nn::Module& module = module_;
    using Result = decltype(module_.forward(std::forward<Arguments>(arguments)...));
    ForwardPassage passage(&module, module_mode(module), tensors_in_arguments(arguments...));
    if constexpr (std::is_void_v<Result>) {
      module_.forward(std::forward<Arguments>(arguments)...);
      passage.leave({});
    } else {
      Result result = module_.forward(std::forward<Arguments>(arguments)...);
      passage.leave(tensors_in_result(result));
      return result;
    }
  }

  template <typename Any, typename... Arguments>
  static auto pass_any(Any& any, Arguments&&... arguments) {
    const auto module = any.ptr();
    ForwardPassage passage(module.get(), module_mode(*module), tensors_in_arguments(arguments...));
    auto result = any.any_forward(std::forward<Arguments>(arguments)...);
    passage.leave(tensors_in_result(result));
    return result;
  }

  template <typename Result, typename... Arguments>
  Result pass_children(Arguments&&... arguments) {
    const torch::nn::Module& module = module_;
    ForwardPassage passage(&module, module_mode(module), tensors_in_arguments(arguments...));
    auto child = module_.begin();
    auto value = pass_any(*child, std::forward<Arguments>(arguments)...);
    for (++child; child != module_.end(); ++child) value = pass_any(*child, std::move(value));
    Result result = value.template get<Result>();
    passage.leave(tensors_in_result(result));
    return result;
  }

  M& module_;
};

template <typename Contained>
std::true_type is_holder(const torch::nn::ModuleHolder<Contained>*);
std::false_type is_holder(const void*);

template <typename M, std::enable_if_t<!decltype(is_holder(static_cast<M*>(nullptr)))::value, int> = 0>
ObservedModule<M> observe(M& module) {
  return ObservedModule<M>(module);
}

// Same as observe(*holder).
template <typename Contained>
ObservedModule<Contained> observe(const torch::nn::ModuleHolder<Contained>& holder) {
  return ObservedModule<Contained>(*holder.ptr());
}

// Shows a tensor under a separate name, as the output of a module of that name. Call it within the forward of
// an observed module.
inline void tap(std::string_view name, const at::Tensor& tensor) {
  if (forward_entry::open()) forward_entry::tapped(name, tensor);
}

// Reports Q and K of a module's attention, for a row of `attention_hook`. Call it within the
// module's forward if the module's inputs are not Q and K. Both are 4-D, with axes as the config
// key `sa_order` says. Recorded if `l2_targets` names that module.
inline void attention(const torch::nn::Module& module, const at::Tensor& q, const at::Tensor& k,
                      Causal causal) {
  if (forward_entry::open()) forward_entry::attended(&module, "", q, k, causal);
}
// The same under a separate name. Recorded if `l2_targets` lists that name, or no attention.
inline void attention(std::string_view name, const at::Tensor& q, const at::Tensor& k, Causal causal) {
  if (forward_entry::open()) forward_entry::attended(nullptr, name, q, k, causal);
}

}  // namespace gradmon
