// SPDX-License-Identifier: Apache-2.0
// Whether a parameter's gradient is still the one that it was, unwritten.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <optional>

namespace gradmon {

// Which gradient a parameter held, and how often it was written. Owns nothing
// that keeps the gradient's memory.
class GradientMark {
 public:
  // None where the parameter has no gradient.
  static std::optional<GradientMark> of(const at::Tensor& parameter) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) return std::nullopt;
    return GradientMark(gradient);
  }

  // However often it was written.
  bool same_gradient(const GradientMark& other) const { return identity_ == other.identity_; }
  bool operator==(const GradientMark& other) const {
    return identity_ == other.identity_ && version_ == other.version_;
  }

 private:
  explicit GradientMark(const at::Tensor& gradient)
      : identity_(gradient.getIntrusivePtr()),
        version_(gradient.is_inference() ? 0U : static_cast<std::uint32_t>(gradient._version())) {}

  c10::weak_intrusive_ptr<c10::TensorImpl> identity_;
  std::uint32_t version_;
};

}  // namespace gradmon
