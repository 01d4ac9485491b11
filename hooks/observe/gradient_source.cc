// SPDX-License-Identifier: Apache-2.0
#include "hooks/observe/gradient_source.h"

#include <torch/csrc/autograd/variable.h>

namespace gradmon {

GradientSource GradientSource::of(const at::Tensor& tensor) {
  if (!tensor.requires_grad()) return {};
  if (NodePointer node = tensor.grad_fn())
    return {Kind::node, node, static_cast<std::size_t>(tensor.output_nr()), {}};
  return {Kind::leaf, {}, 0, c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr())};
}

bool GradientSource::is(const GradientSource& other) const {
  if (kind == Kind::none || kind != other.kind || output != other.output) return false;
  if (leaf) return *leaf == *other.leaf;
  const auto own = node.lock();
  return own != nullptr && own == other.node.lock();
}

NodePointer GradientSource::find() const {
  if (!leaf) return node.lock();
  const at::Tensor alive(leaf->lock());
  return alive.defined() ? torch::autograd::impl::try_get_grad_accumulator(alive) : nullptr;
}

}  // namespace gradmon
