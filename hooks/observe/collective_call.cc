// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/collective_call.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>
#include <torch/custom_class.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#if __has_include(<torch/csrc/distributed/c10d/GroupRegistry.hpp>)  // not in torch 1.13
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include "hooks/rows/wrapper_tensor.h"

namespace gradmon {
namespace {

constexpr const char* kPrefix = "c10d::";
constexpr const char* kFunctional = "_c10d_functional::";
constexpr const char* kSymmetricMemory = "symm_mem::";
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kPythonNames = {{
    {"allreduce", "all_reduce"},
    {"allreduce_coalesced", "all_reduce_coalesced"},
    {"allreduce_sparse", "all_reduce"},
    {"allgather", "all_gather"},
    {"allgather_base", "all_gather_into_tensor"},
    {"allgather_coalesced", "all_gather_coalesced"},
    {"reduce_scatter_base", "reduce_scatter_tensor"},
    {"alltoall", "all_to_all"},
    {"alltoall_base", "all_to_all_single"},
    {"recv_any_source", "recv"},
}};

// The operators of symmetric memory that are read: the names of the arguments with the input ("": the input
// is never whole in memory) and the output ("": the first result). The current stream waits for the other
// streams that a fused operator uses.
struct SymmetricOperator {
  std::string_view name, input, output;
};
constexpr std::array<SymmetricOperator, 18> kSymmetricOperators = {{
    {"fused_all_gather_matmul", "A", ""},
    {"fused_all_gather_scaled_matmul", "A", ""},
    {"fused_matmul_reduce_scatter", "", ""},
    {"fused_scaled_matmul_reduce_scatter", "", ""},
    {"multimem_all_gather_out", "input", "out"},
    {"multimem_all_reduce_", "input", "input"},
    {"multimem_one_shot_all_reduce", "input", ""},
    {"multimem_one_shot_all_reduce_out", "input", "out"},
    {"multimem_one_shot_reduce_out", "input", "out"},
    {"nvshmem_all_to_all", "input", "out"},
    {"nvshmem_broadcast", "input", "input"},
    {"one_shot_all_reduce", "input", ""},
    {"one_shot_all_reduce_copy", "local_input", ""},
    {"one_shot_all_reduce_copy_out", "local_input", "out"},
    {"one_shot_all_reduce_out", "input", "out"},
    {"reduce_scatter_out", "input", "output"},
    {"two_shot_all_reduce_", "input", "input"},
    {"two_shot_all_reduce_out", "input", "output"},
}};
// The operators that pass no values of tensors to other ranks.
constexpr std::array<std::string_view, 9> kWithoutValues = {"_async_input_mm",
                                                            "_barrier",
                                                            "_rendezvous",
                                                            "get_remote_tensors",
                                                            "memset32_",
                                                            "nccl_wait_for_signal",
                                                            "nccl_wait_signal",
                                                            "nvshmem_wait_for_signal",
                                                            "stream_write_value32_"};

std::string without_underscores(std::string_view name) {
  while (!name.empty() && name.front() == '_') name.remove_prefix(1);
  while (!name.empty() && name.back() == '_') name.remove_suffix(1);
  return std::string(name);
}

std::string python_name(std::string_view operator_name) {
  const std::string name = without_underscores(operator_name.substr(std::strlen(kPrefix)));
  for (const auto& [here, there] : kPythonNames) {
    if (name == here) return std::string(there);
  }
  return name;
}

bool is_class(const c10::IValue& value, const char* name) {
  if (!value.isObject()) return false;
  const auto qualified = value.toObjectRef().type()->name();
  return qualified && qualified->name() == name;
}

void flatten(const c10::IValue& value, std::vector<at::Tensor>& into) {
  if (value.isTensor()) {
    into.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) into.push_back(tensor);
  } else {
    for (const c10::IValue& element : value.toListRef()) flatten(element, into);
  }
}

bool carries_tensors(const c10::IValue& value) {
  if (value.isTensor() || value.isTensorList()) return true;
  if (!value.isList()) return false;
  const auto& type = *value.type()->expectRef<c10::ListType>().getElementType();
  return type.kind() == c10::TypeKind::ListType || type.kind() == c10::TypeKind::TensorType;
}

template <typename Group>
auto name_of_group(const Group& group, int) -> decltype(std::string(group.getGroupName())) {
  return group.getGroupName();
}
template <typename Group>
std::string name_of_group(const Group&, long) {
  return {};
}

void describe(const c10d::ProcessGroup& group, CollectiveCall& call) {
  call.group_id = &group;
  call.group_size = group.getSize();
  call.group_rank = group.getRank();
  try {
    call.group = group.getBackendName();
    const std::string name = name_of_group(group, 0);
    if (!name.empty()) call.group += " " + name;
  } catch (const std::exception&) {  // not every backend has a name
  }
}

#if __has_include(<torch/csrc/distributed/c10d/GroupRegistry.hpp>)
void describe_named(const std::string& group, CollectiveCall& call) {
  try {
    describe(*c10d::resolve_process_group(group), call);
  } catch (const std::exception&) {  // registered elsewhere
  }
}
#else
void describe_named(const std::string&, CollectiveCall&) {}
#endif

// The arguments of a call by name.
class NamedArguments {
 public:
  NamedArguments(const char* operator_name, c10::ArrayRef<const c10::IValue> values) : values_(values) {
    const auto handle = c10::Dispatcher::singleton().findSchema({operator_name, ""});
    if (!handle) return;
    for (const c10::Argument& argument : handle->schema().arguments()) names_.push_back(argument.name());
  }
  // Null: missing.
  const c10::IValue* find(std::string_view name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    const auto index = static_cast<std::size_t>(found - names_.begin());
    return index < std::min(names_.size(), values_.size()) ? &values_[index] : nullptr;
  }

 private:
  const c10::ArrayRef<const c10::IValue> values_;
  std::vector<std::string> names_;
};

const SymmetricOperator* symmetric_operator(std::string_view name) {
  name.remove_prefix(std::strlen(kSymmetricMemory));
  const auto found = std::find_if(kSymmetricOperators.begin(), kSymmetricOperators.end(),
                                  [&](const SymmetricOperator& one) { return one.name == name; });
  return found == kSymmetricOperators.end() ? nullptr : &*found;
}

}  // namespace

bool is_collective(const char* name) noexcept {
  return name != nullptr && std::strncmp(name, kPrefix, std::strlen(kPrefix)) == 0;
}

bool is_functional(const char* name) noexcept {
  return name != nullptr && std::strncmp(name, kFunctional, std::strlen(kFunctional)) == 0;
}

bool is_functional_wait(const char* name) noexcept {
  return is_functional(name) && std::strcmp(name + std::strlen(kFunctional), "wait_tensor") == 0;
}

bool is_symmetric_memory(const char* name) noexcept {
  return name != nullptr && std::strncmp(name, kSymmetricMemory, std::strlen(kSymmetricMemory)) == 0;
}

std::optional<CollectiveCall> symmetric_memory_call(const char* name,
                                                    c10::ArrayRef<const c10::IValue> arguments) {
  const SymmetricOperator* const known = symmetric_operator(name);
  if (known == nullptr) return std::nullopt;
  const NamedArguments named(name, arguments);
  CollectiveCall call;
  call.op = without_underscores(known->name);
  call.group = "symm_mem";
  call.synchronous = true;
  if (const auto* group = named.find("group_name"); group != nullptr && group->isString())
    describe_named(group->toStringRef(), call);
  if (const auto* input = named.find(known->input); input != nullptr && carries_tensors(*input))
    flatten(*input, call.inputs);
  const auto* root = named.find("root");
  if (call.op == "multimem_one_shot_reduce_out" && root != nullptr && root->toInt() != call.group_rank)
    return call;
  // A wrapper's class repeats the call with the wrapped tensors; the compiler looks only at its result.
  if (std::any_of(call.inputs.begin(), call.inputs.end(), &is_wrapper)) return CollectiveCall();
  call.returns_output = known->output.empty();
  if (const auto* output = named.find(known->output); output != nullptr && carries_tensors(*output))
    flatten(*output, call.outputs);
  return call;
}

std::string why_unread(const char* name) {
  const std::string_view own = std::string_view(name).substr(std::strlen(kSymmetricMemory));
  if (std::find(kWithoutValues.begin(), kWithoutValues.end(), own) != kWithoutValues.end()) return {};
  return "cc_distribution: torch.ops.symm_mem." + std::string(own) +
         " is not read: gradmon does not know when its tensors are complete";
}

CollectiveCall collective_call(const char* name, c10::ArrayRef<const c10::IValue> arguments) {
  CollectiveCall call;
  call.op = python_name(name);
  std::vector<const c10::IValue*> tensors;
  std::optional<std::int64_t> first_number;
  for (const c10::IValue& argument : arguments) {
    if (carries_tensors(argument)) tensors.push_back(&argument);
    if (argument.isBool()) call.synchronous = !argument.toBool();  // the only bool is async_op
    if (argument.isInt() && !first_number) first_number = argument.toInt();
    if (is_class(argument, "ProcessGroup")) describe(*argument.toCustomClass<c10d::ProcessGroup>(), call);
  }
  if (call.op.find("barrier") != std::string::npos || tensors.empty()) return call;
  const bool not_the_root = call.op == "reduce" && first_number && *first_number != call.group_rank;
  if (call.op != "send" && !not_the_root) flatten(*tensors.front(), call.outputs);
  if (call.op != "recv") flatten(*tensors.back(), call.inputs);
  return call;
}

c10::intrusive_ptr<c10d::Work> work_of(const std::vector<c10::IValue>& results) {
  for (const c10::IValue& result : results) {
    if (is_class(result, "Work")) return result.toCustomClass<c10d::Work>();
  }
  return {};
}

}  // namespace gradmon
