// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/readable.h"

#include <c10/core/DispatchKeySet.h>

#include "hooks/device/cuda_totals.h"

namespace gradmon {

bool has_allocated_storage(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || !tensor.has_storage()) return true;
  if (tensor.storage().data() == nullptr) return false;
  std::int64_t last = tensor.storage_offset();
  if (tensor.is_contiguous()) {
    last += tensor.numel() - 1;
  } else {
    for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  }
  const std::int64_t needed = (last + 1) * static_cast<std::int64_t>(tensor.element_size());
  return tensor.storage().nbytes() >= static_cast<std::size_t>(needed);
}

std::optional<std::uint32_t> version_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_inference()) return std::nullopt;
  // Tensor::_version() copies the counter, with two atomic operations.
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

std::string why_no_array(const at::Tensor& tensor) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet of_func(
      {DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchGradWrapper, DispatchKey::Functionalize});
  if (tensor.is_nested()) return "a nested tensor";
  return tensor.key_set().has_any(of_func) ? "a tensor within torch.func (vmap, grad)" : "";
}

std::string why_unreadable(const at::Tensor& tensor, std::string_view subject) {
  const std::string name(subject);
  if (!tensor.defined()) return "no tensor found";
  if (std::string why = why_no_array(tensor); !why.empty()) return name + " is " + why;
  if (!tensor.is_floating_point()) return name + " is not floating-point";
  if (tensor.layout() != at::kStrided) return name + " is not dense";
  if (tensor.numel() == 0) return name + " has no elements";
  if (tensor.is_meta() || !has_allocated_storage(tensor)) return kWithoutMemory;
  return why_captured(tensor.device());
}

}  // namespace gradmon
