// SPDX-License-Identifier: Apache-2.0
// Detects whether a parameter's gradient was replaced or written.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <optional>

#include "hooks/stats/readable.h"

namespace gradmon {

// The identity and the version of a parameter's gradient. Does not keep the gradient's memory.
class GradientMark {
 public:
  // Empty if the parameter has no gradient.
  static std::optional<GradientMark> of(const at::Tensor& parameter) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) return std::nullopt;
    return GradientMark(gradient);
  }

  // Compares the identity only, not the version.
  bool same_gradient(const GradientMark& other) const { return identity_ == other.identity_; }
  bool operator==(const GradientMark& other) const {
    return identity_ == other.identity_ && version_ == other.version_;
  }

 private:
  explicit GradientMark(const at::Tensor& gradient)
      : identity_(gradient.getIntrusivePtr()), version_(version_of(gradient).value_or(0)) {}

  c10::weak_intrusive_ptr<c10::TensorImpl> identity_;
  std::uint32_t version_;
};

}  // namespace gradmon
