// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/attention_features.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/xlogy.h>
#include <ATen/ops/zeros.h>

#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>

#include "control/debian_version.h"
#include "hooks/device/device_batch.h"
#include "tests/hooks/stats/thread_count.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The features computed from the full attention matrix, in double.
AttentionFeatures reference(const at::Tensor& q, const at::Tensor& k, AxisOrder order, Causal causal) {
  const auto arranged = [&](const at::Tensor& x) {
    return x.to(at::kDouble)
        .permute(order == AxisOrder::sbhd ? at::IntArrayRef{1, 2, 0, 3} : at::IntArrayRef{0, 2, 1, 3});
  };
  const at::Tensor queries = arranged(q);
  const at::Tensor keys = arranged(k).repeat_interleave(queries.size(1) / k.size(2), 1);
  at::Tensor scores = at::matmul(queries, keys.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  if (causal == Causal::yes) {
    const at::Tensor seen = at::tril(at::ones({queries.size(2), keys.size(2)}, at::kBool));
    scores = scores.masked_fill(seen.logical_not(), -kInf);
  }
  const at::Tensor p = scores.softmax(-1);
  return {-at::xlogy(p, p).sum(-1).mean().item<double>(), p.amax(-1).mean().item<double>(), {}};
}

AttentionFeatures features_of(const at::Tensor& q, const at::Tensor& k, AxisOrder order, Causal causal) {
  const auto features = attention_features(q, k, order, causal);
  REQUIRE(features);
  return *features;
}

bool agree(double a, double b, double tolerance) {
  return std::fabs(a - b) <= tolerance * std::fabs(b) + 1e-15;
}

void compare(const at::Tensor& q, const at::Tensor& k, AxisOrder order, double tolerance) {
  for (const Causal causal : {Causal::no, Causal::yes}) {
    const AttentionFeatures got = features_of(q, k, order, causal);
    const AttentionFeatures wanted = reference(q, k, order, causal);
    CAPTURE(q.sizes(), k.sizes(), causal == Causal::yes, got.entropy, wanted.entropy);
    CHECK(agree(got.entropy, wanted.entropy, tolerance));
    CHECK(agree(got.softmax_max, wanted.softmax_max, tolerance));
  }
}

at::Tensor random_tensor(at::IntArrayRef sizes, double scale = 1) { return at::randn(sizes) * scale; }

// Takes the path of device tensors with tensors of the CPU.
AttentionFeatures features_by_device_path(const at::Tensor& q, const at::Tensor& k, Causal causal) {
  const c10::NoGradGuard no_grad;
  DeviceBatch batch;
  batch.add(pending_attention_features(q.permute({1, 2, 0, 3}), k.permute({1, 2, 0, 3}), causal));
  const auto values = batch.resolve().front().value();
  return {values[0], values[1], {}};
}

std::string refusal(const at::Tensor& q, const at::Tensor& k) {
  const auto features = attention_features(q, k, AxisOrder::sbhd, Causal::no);
  REQUIRE_FALSE(features);
  return features.error();
}

TEST_CASE("the device path gives the same attention features") {
  for (const Causal causal : {Causal::no, Causal::yes}) {
    const at::Tensor q = random_tensor({70, 2, 6, 16}), k = random_tensor({90, 2, 3, 16});
    const AttentionFeatures got = features_by_device_path(q, k, causal);
    const AttentionFeatures wanted = reference(q, k, AxisOrder::sbhd, causal);
    CHECK(agree(got.entropy, wanted.entropy, 1e-5));
    CHECK(agree(got.softmax_max, wanted.softmax_max, 1e-5));
  }
}

TEST_CASE("attention features equal those of the full attention matrix in double") {
  for (const double scale : {0.1, 1.0, 3.0}) {
    for (const std::int64_t length : {1, 5, 64, 257, 700}) {
      compare(random_tensor({length, 2, 3, 32}, scale), random_tensor({length, 2, 3, 32}, scale),
              AxisOrder::sbhd, 1e-6);
    }
  }
  compare(random_tensor({2, 130, 2, 7}), random_tensor({2, 130, 2, 7}), AxisOrder::bshd, 1e-6);
  compare(random_tensor({1, 40, 1, 1}), random_tensor({1, 40, 1, 1}), AxisOrder::bshd, 1e-6);
}

TEST_CASE("the numbers of queries and keys may differ") {
  compare(random_tensor({100, 1, 2, 16}), random_tensor({300, 1, 2, 16}), AxisOrder::sbhd, 1e-6);
  compare(random_tensor({300, 1, 2, 16}), random_tensor({100, 1, 2, 16}), AxisOrder::sbhd, 1e-6);
  compare(random_tensor({1, 1, 2, 16}), random_tensor({513, 1, 2, 16}), AxisOrder::sbhd, 1e-6);
}

TEST_CASE("grouped queries share the keys of their group") {
  compare(random_tensor({65, 2, 6, 16}), random_tensor({65, 2, 2, 16}), AxisOrder::sbhd, 1e-6);
  compare(random_tensor({2, 65, 6, 16}), random_tensor({2, 65, 1, 16}), AxisOrder::bshd, 1e-6);
}

TEST_CASE("Q and K may be of any floating type") {
  const at::Tensor q = random_tensor({90, 1, 2, 24}), k = random_tensor({90, 1, 2, 24});
  compare(q.to(at::kDouble), k.to(at::kDouble), AxisOrder::sbhd, 1e-12);
  compare(q.to(at::kHalf), k.to(at::kHalf), AxisOrder::sbhd, 1e-6);
  compare(q.to(at::kBFloat16), k.to(at::kBFloat16), AxisOrder::sbhd, 1e-6);
  compare(q.to(at::kBFloat16), k, AxisOrder::sbhd, 1e-6);
}

TEST_CASE("Q and K may have any strides") {
  const at::Tensor both = random_tensor({50, 2, 3, 2, 16});
  compare(both.select(3, 0), both.select(3, 1), AxisOrder::sbhd, 1e-6);
  compare(random_tensor({16, 3, 2, 50}).permute({3, 2, 1, 0}), random_tensor({50, 2, 3, 16}), AxisOrder::sbhd,
          1e-6);
  compare(random_tensor({1, 2, 1, 16}).expand({50, 2, 3, 16}),
          random_tensor({50, 2, 1, 16}).expand({50, 2, 3, 16}), AxisOrder::sbhd, 1e-6);
}

TEST_CASE("every head and every batch element counts") {
  const at::Tensor q = random_tensor({20, 2, 2, 8}, 0.01), k = random_tensor({20, 2, 2, 8}, 0.01);
  const double even = features_of(q, k, AxisOrder::sbhd, Causal::no).softmax_max;
  q.select(1, 1).select(1, 1).mul_(1e7);
  CHECK(features_of(q, k, AxisOrder::sbhd, Causal::no).softmax_max > 2 * even);
}

TEST_CASE("a dominant score gives entropy 0 and softmax_max 1") {
  const at::Tensor q = at::ones({3, 1, 1, 4}) * 1e4;
  const at::Tensor k = at::zeros({600, 1, 1, 4});
  k.select(0, 599).fill_(1e4);
  const AttentionFeatures features = features_of(q, k, AxisOrder::sbhd, Causal::no);
  CHECK(features.entropy < 1e-30);
  CHECK(features.softmax_max == 1);
}

TEST_CASE("a NaN or infinite score gives NaN unless it is masked") {
  for (const double bad : {std::nan(""), kInf}) {
    const at::Tensor q = at::ones({300, 1, 1, 4}), k = at::ones({300, 1, 1, 4});
    k.select(0, 299).select(2, 0).fill_(bad);
    CHECK(std::isnan(features_of(q, k, AxisOrder::sbhd, Causal::no).entropy));
    CHECK(std::isnan(features_of(q, k, AxisOrder::sbhd, Causal::no).softmax_max));
    CHECK(std::isnan(features_of(q, k, AxisOrder::sbhd, Causal::yes).softmax_max));
    const at::Tensor fewer = q.narrow(0, 0, 299);
    CHECK(std::isfinite(features_of(fewer, k, AxisOrder::sbhd, Causal::yes).entropy));
  }
}

TEST_CASE("a score of minus infinity has weight 0 and a query with no other score gives NaN") {
  const at::Tensor q = at::ones({2, 1, 1, 4}), k = at::ones({300, 1, 1, 4});
  k.narrow(0, 0, 298).select(3, 0).fill_(-kInf);
  CHECK(agree(features_of(q, k, AxisOrder::sbhd, Causal::no).entropy, std::log(2.0), 1e-6));
  CHECK(agree(features_of(q, k, AxisOrder::sbhd, Causal::no).softmax_max, 0.5, 1e-6));
  k.select(3, 0).fill_(-kInf);
  CHECK(std::isnan(features_of(q, k, AxisOrder::sbhd, Causal::no).entropy));
}

TEST_CASE("attention features do not depend on the number of threads") {
  const at::Tensor q = random_tensor({900, 1, 2, 16}), k = random_tensor({900, 1, 2, 16});
  const auto with_threads = [&](int threads) {
    const ThreadCount count(threads);
    return features_of(q, k, AxisOrder::sbhd, Causal::yes);
  };
  const AttentionFeatures alone = with_threads(1), together = with_threads(4);
  CHECK(alone.entropy == together.entropy);
  CHECK(alone.softmax_max == together.softmax_max);
}

TEST_CASE("tensors that cannot be Q and K are refused with the reason") {
  const at::Tensor q = random_tensor({4, 2, 6, 8});
  CHECK(refusal(at::Tensor(), q) == "Q and K are not 4-D");
  CHECK(refusal(q, random_tensor({4, 2, 48})) == "Q and K are not 4-D");
  CHECK(refusal(q, at::ones({4, 2, 6, 8}, at::kLong)) == "K is not floating-point");
  CHECK(refusal(q, random_tensor({4, 2, 6, 4})) == "Q and K have different head sizes");
  CHECK(refusal(q, random_tensor({4, 1, 6, 8})) == "Q and K have different batch sizes");
  CHECK(refusal(q, random_tensor({4, 2, 4, 8})) ==
        "the number of Q heads is not a multiple of the number of K heads");
  CHECK(refusal(random_tensor({0, 2, 6, 8}), q) == "Q has no elements");
  CHECK(refusal(at::empty({4, 2, 6, 8}, at::kMeta), q) == "meta tensor, or its storage is freed");
  at::Tensor freed = random_tensor({4, 2, 6, 8});
  freed.storage().set_nbytes(0);
  CHECK(refusal(q, freed) == "meta tensor, or its storage is freed");
}

}  // namespace
}  // namespace gradmon
