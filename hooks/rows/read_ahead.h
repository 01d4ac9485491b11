// SPDX-License-Identifier: Apache-2.0
// Asks for memory before it is read. In a model of many small tensors nothing of a tensor is in the
// processor's cache when its turn comes, and a reading takes less time than the waits for the five pointers
// on the way to its elements.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "hooks/rows/reading.h"
#include "hooks/stats/prefetch.h"

namespace gradmon {

// Call it for each parameter in turn, while no other thread changes a gradient. One pointer more is followed
// for each parameter that is four nearer: what it points to has come by then.
inline void ask_for_gradients_after(const std::vector<WatchedTensor>& watched, std::size_t i) {
  constexpr std::size_t apart = 4, pointers = 5;
  const auto parameter = [&](std::size_t followed) -> const at::Tensor* {
    const std::size_t at = i + (pointers - followed) * apart;
    return at < watched.size() ? &*watched[at].tensor : nullptr;
  };
  const auto gradient = [&](std::size_t followed) -> const at::Tensor* {
    const at::Tensor* const of = parameter(followed);
    const auto* meta = of == nullptr ? nullptr : of->unsafeGetTensorImpl()->autograd_meta();
    return meta == nullptr ? nullptr : &static_cast<const torch::autograd::AutogradMeta*>(meta)->grad_;
  };
  if (const auto* found = parameter(0)) ask_for(found, sizeof *found);
  if (const auto* found = parameter(1)) ask_for(found->unsafeGetTensorImpl(), sizeof(c10::TensorImpl));
  if (const auto* found = gradient(2)) ask_for(found, sizeof *found);
  if (const auto* found = gradient(3)) ask_for(found->unsafeGetTensorImpl(), sizeof(c10::TensorImpl));
  const auto* const found = gradient(4);
  if (found == nullptr || !found->defined()) return;
  const c10::TensorImpl* const tensor = found->unsafeGetTensorImpl();
  ask_for(tensor->unsafe_storage().unsafeGetStorageImpl(), sizeof(c10::StorageImpl));
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*));  // points to the counter
  const void* counter = nullptr;
  std::memcpy(&counter, &tensor->version_counter(), sizeof counter);
  __builtin_prefetch(counter);
}

}  // namespace gradmon
