// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/collective_call.h"

#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>
#include <torch/custom_class.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <array>
#include <cstring>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

namespace gradmon {
namespace {

constexpr const char* kPrefix = "c10d::";
constexpr const char* kFunctional = "_c10d_functional::";
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

std::string python_name(std::string_view name) {
  name.remove_prefix(std::strlen(kPrefix));
  while (!name.empty() && name.front() == '_') name.remove_prefix(1);
  while (!name.empty() && name.back() == '_') name.remove_suffix(1);
  for (const auto& [here, there] : kPythonNames) {
    if (name == here) return std::string(there);
  }
  return std::string(name);
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

CollectiveCall collective_call(const char* name, c10::ArrayRef<const c10::IValue> arguments) {
  CollectiveCall call;
  call.op = python_name(name);
  std::vector<const c10::IValue*> tensors;
  std::optional<std::int64_t> first_number;
  for (const c10::IValue& argument : arguments) {
    if (carries_tensors(argument)) tensors.push_back(&argument);
    if (argument.isBool()) call.synchronous = !argument.toBool();  // the one of this type is async_op
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
