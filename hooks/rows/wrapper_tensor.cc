// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/wrapper_tensor.h"

#include <c10/core/DispatchKey.h>
#include <c10/core/GradMode.h>

#include <atomic>

#include "hooks/stats/readable.h"

namespace gradmon {
namespace {

std::atomic<Unwrap> unwrap_in_python{nullptr};

}  // namespace

bool is_wrapper(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python);
}

void set_unwrap(Unwrap unwrap) noexcept { unwrap_in_python.store(unwrap, std::memory_order_release); }

Unwrapped unwrapped(const at::Tensor& tensor) {
  Unwrapped inner = taken_apart(tensor);
  if (inner.values)
    inner.why =
        std::string("numbers of type ") + name_of(inner.values->dtype) + " are not combined with others";
  return inner;
}

Unwrapped taken_apart(const at::Tensor& tensor) {
  if (!is_wrapper(tensor)) return {tensor, "", {}};
  const Unwrap unwrap = unwrap_in_python.load(std::memory_order_acquire);
  if (unwrap != nullptr) {
    if (auto inner = unwrap(tensor)) return std::move(*inner);
  }
  // A subclass that only observes operators: the memory is the tensor's own.
  if (tensor.has_storage() && has_allocated_storage(tensor)) return {tensor, "", {}};
  return {{}, "a tensor of a class that wraps others", {}};
}

at::Tensor run_of(const at::Tensor& tensor, const ElementRun& run) {
  if (!tensor.is_contiguous() || tensor.numel() < run.begin + run.count) return {};
  const c10::NoGradGuard no_grad;
  return tensor.detach().view(-1).narrow(0, run.begin, run.count);
}

}  // namespace gradmon
