// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/router_features.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/xlogy.h>

#include <limits>

#include "hooks/device/plain_torch.h"
#include "hooks/stats/readable.h"

namespace gradmon {
namespace {

std::optional<DeviceScalars::Values> as_it_is(const double* number, double) {
  return DeviceScalars::Values{*number};
}

RouterFeature feature_of(const at::Tensor& number) {
  if (number.is_cpu()) return {number.item<double>(), {}};
  return {std::numeric_limits<double>::quiet_NaN(), pack_scalars({number}, 0, as_it_is)};
}

}  // namespace

tl::expected<RouterFeature, std::string> router_cosine(const at::Tensor& weight) {
  if (std::string why = why_unreadable(weight, "the weight"); !why.empty())
    return tl::unexpected(std::move(why));
  if (weight.dim() != 2) return tl::unexpected<std::string>("the weight is not 2-D");
  const PlainTorch plain;
  const at::Tensor vectors = (weight.size(0) > weight.size(1) ? weight.t() : weight).to(at::kDouble);
  const auto experts = static_cast<double>(vectors.size(0));
  if (experts < 2) return tl::unexpected<std::string>("the cosine needs at least two experts");
  // Divides by the largest element first: otherwise squares could overflow or underflow.
  const at::Tensor largest = vectors.abs().amax(1, true);
  at::Tensor directions = vectors / largest.masked_fill(largest == 0, 1);
  const at::Tensor lengths = directions.norm(2, 1, true);
  directions = directions / lengths.masked_fill(lengths == 0, 1);
  const at::Tensor pairs = directions.sum(0).square().sum() - directions.square().sum();
  return feature_of(pairs / (experts * (experts - 1)));
}

tl::expected<RouterFeature, std::string> router_entropy(const at::Tensor& logits) {
  if (std::string why = why_unreadable(logits); !why.empty()) return tl::unexpected(std::move(why));
  if (logits.dim() == 0) return tl::unexpected<std::string>("the logits are a scalar");
  const PlainTorch plain;
  const at::Tensor p = logits.to(at::kDouble).softmax(-1);
  return feature_of(-at::xlogy(p, p).sum(-1).mean());
}

}  // namespace gradmon
