// SPDX-License-Identifier: Apache-2.0
// Detects that a parameter's gradient was replaced or written.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <optional>

#include "hooks/stats/readable.h"

namespace gradmon {

// The identity and the version of a parameter's gradient. Does not keep the gradient's memory. The identity
// is the memory's: torch.utils.swap_tensors() refuses a tensor with weak references.
class GradientMark {
 public:
  // Empty if the parameter has no gradient.
  static std::optional<GradientMark> of(const at::Tensor& parameter) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) return std::nullopt;
    return GradientMark(gradient);
  }

  // Compares the identity only, not the version.
  bool same_gradient(const GradientMark& other) const {
    return memory_ == other.memory_ && tensor_ == other.tensor_;
  }
  bool operator==(const GradientMark& other) const {
    return same_gradient(other) && version_ == other.version_;
  }

 private:
  explicit GradientMark(const at::Tensor& gradient) : version_(version_of(gradient).value_or(0)) {
    const c10::Storage& memory = gradient.unsafeGetTensorImpl()->unsafe_storage();
    if (memory) {
      memory_ = memory.getWeakStorageImpl();
    } else {
      tensor_ = c10::weak_intrusive_ptr<c10::TensorImpl>(gradient.getIntrusivePtr());
    }
  }

  static c10::weak_intrusive_ptr<c10::StorageImpl> no_memory() {
    return c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>());
  }
  static c10::weak_intrusive_ptr<c10::TensorImpl> no_tensor() {
    return c10::weak_intrusive_ptr<c10::TensorImpl>(c10::intrusive_ptr<c10::TensorImpl>());
  }

  c10::weak_intrusive_ptr<c10::StorageImpl> memory_ = no_memory();
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor_ = no_tensor();  // only without storage, as a sparse tensor
  std::uint32_t version_;
};

}  // namespace gradmon
