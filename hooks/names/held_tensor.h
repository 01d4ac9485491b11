// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

namespace gradmon {

// A watched parameter. Copies share it. Any thread may read it while no other changes it.
class HeldTensor {
 public:
  HeldTensor() : HeldTensor(at::Tensor()) {}
  HeldTensor(at::Tensor tensor) : place_(std::make_shared<const at::Tensor>(std::move(tensor))) {}
  // `tensor` is in `owner`, an object of the program. There is no reference more to the tensor itself:
  // torch.utils.swap_tensors(), by which Module.to() moves DTensors, refuses a tensor that has others. After
  // a swap this is what the owner has now.
  HeldTensor(const std::shared_ptr<void>& owner, const at::Tensor& tensor) : place_(owner, &tensor) {}

  const at::Tensor& operator*() const { return *place_; }
  const at::Tensor* operator->() const { return place_.get(); }

 private:
  std::shared_ptr<const at::Tensor> place_;
};

}  // namespace gradmon
