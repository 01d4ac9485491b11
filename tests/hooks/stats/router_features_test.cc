// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/router_features.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// The mean cosine of all pairs, computed pair by pair.
double mean_cosine(const at::Tensor& experts) {
  double sum = 0;
  int pairs = 0;
  for (std::int64_t i = 0; i < experts.size(0); ++i) {
    for (std::int64_t j = i + 1; j < experts.size(0); ++j, ++pairs) {
      sum += at::cosine_similarity(experts[i].to(at::kDouble), experts[j].to(at::kDouble), 0).item<double>();
    }
  }
  return sum / pairs;
}

double cosine(const at::Tensor& weight) { return router_cosine(weight)->value; }
double entropy(const at::Tensor& logits) { return router_entropy(logits)->value; }

bool agree(double a, double b) { return std::fabs(a - b) <= 1e-9 * std::fabs(b) + 1e-15; }

TEST_CASE("router cosine is the mean over all pairs of experts") {
  const at::Tensor weight = at::randn({8, 32}) + 0.3;
  CHECK(agree(cosine(weight), mean_cosine(weight)));
  CHECK(agree(cosine(weight.t()), mean_cosine(weight)));
  CHECK(agree(cosine(weight.to(at::kBFloat16)), mean_cosine(weight.to(at::kBFloat16))));
  CHECK(agree(cosine(weight.to(at::kDouble) * 1e200), mean_cosine(weight)));
  CHECK(agree(cosine(at::ones({4, 9})), 1));
  CHECK(agree(cosine(at::eye(5)), 0));
}

TEST_CASE("an expert of zeros has cosine 0 with the others and a NaN gives NaN") {
  const at::Tensor weight = at::ones({3, 9});
  weight[1].zero_();
  CHECK(agree(cosine(weight), 1.0 / 3));
  weight[1].fill_(std::nan(""));
  CHECK(std::isnan(cosine(weight)));
}

TEST_CASE("router entropy is the mean over tokens") {
  const at::Tensor logits = at::randn({6, 5, 8});
  const at::Tensor log_p = at::log_softmax(logits.to(at::kDouble), -1);
  CHECK(agree(entropy(logits), -(log_p.exp() * log_p).sum(-1).mean().item<double>()));
  CHECK(agree(entropy(at::zeros({7, 16}, at::kHalf)), std::log(16.0)));
}

TEST_CASE("a masked expert does not count in the entropy and NaN logits give NaN") {
  const at::Tensor logits = at::zeros({4, 8});
  logits.narrow(1, 0, 4).fill_(-std::numeric_limits<double>::infinity());
  CHECK(agree(entropy(logits), std::log(4.0)));
  logits.fill_(std::nan(""));
  CHECK(std::isnan(entropy(logits)));
}

TEST_CASE("tensors that cannot be a router's are refused with the reason") {
  CHECK(router_cosine(at::Tensor()).error() == "no tensor found");
  CHECK(router_cosine(at::ones({4})).error() == "the weight is not 2-D");
  CHECK(router_cosine(at::ones({1, 4})).error() == "the cosine needs at least two experts");
  CHECK(router_entropy(at::ones({4, 4}, at::kLong)).error() == "the tensor is not floating-point");
  CHECK(router_entropy(at::empty({0, 4})).error() == "the tensor has no elements");
  CHECK(router_entropy(at::empty({2, 4}, at::kMeta)).error() == "meta tensor, or its storage is freed");
  CHECK(router_entropy(at::ones({})).error() == "the logits are a scalar");
  at::Tensor freed = at::ones({4, 4});
  freed.storage().set_nbytes(0);
  CHECK(router_cosine(freed).error() == "meta tensor, or its storage is freed");
  CHECK(router_entropy(freed).error() == "meta tensor, or its storage is freed");
}

}  // namespace
}  // namespace gradmon
