// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/l2_features.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/diag.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/xlogy.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "hooks/device/device_fetch.h"
#include "tests/hooks/stats/thread_count.h"
#include "tests/support/catch.h"

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

bool agree(double a, double b, double tolerance = 1e-6) {
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

double largest_singular_value(const at::Tensor& weight) {
  return at::linalg_svdvals(weight.to(at::kDouble))[0].item<double>();
}

Spectrum measured(WeightSpectrum& spectrum, const at::Tensor& weight) {
  const auto result = spectrum.measure(weight);
  REQUIRE(result);
  return *result;
}

Spectrum measured(const at::Tensor& weight) {
  WeightSpectrum spectrum("weight");
  return measured(spectrum, weight);
}

void compare(const at::Tensor& weight, double tolerance = 1e-6) {
  const Spectrum got = measured(weight);
  const double wanted = largest_singular_value(weight);
  const double frobenius = weight.to(at::kDouble).norm().item<double>();
  CAPTURE(weight.sizes(), got.kernel_norm, wanted, got.products);
  CHECK(got.converged);
  CHECK(agree(got.kernel_norm, wanted, tolerance));
  CHECK(agree(got.stable_rank(), frobenius / wanted, tolerance));
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

TEST_CASE("router cosine is the mean over all pairs of experts") {
  const at::Tensor weight = at::randn({8, 32}) + 0.3;
  CHECK(agree(cosine(weight), mean_cosine(weight), 1e-9));
  CHECK(agree(cosine(weight.t()), mean_cosine(weight), 1e-9));
  CHECK(agree(cosine(weight.to(at::kBFloat16)), mean_cosine(weight.to(at::kBFloat16)), 1e-9));
  CHECK(agree(cosine(weight.to(at::kDouble) * 1e200), mean_cosine(weight), 1e-9));
  CHECK(agree(cosine(at::ones({4, 9})), 1, 1e-9));
  CHECK(agree(cosine(at::eye(5)), 0, 1e-9));
}

TEST_CASE("an expert of zeros has cosine 0 with the others and a NaN gives NaN") {
  const at::Tensor weight = at::ones({3, 9});
  weight[1].zero_();
  CHECK(agree(cosine(weight), 1.0 / 3, 1e-9));
  weight[1].fill_(std::nan(""));
  CHECK(std::isnan(cosine(weight)));
}

TEST_CASE("router entropy is the mean over tokens") {
  const at::Tensor logits = at::randn({6, 5, 8});
  const at::Tensor log_p = at::log_softmax(logits.to(at::kDouble), -1);
  CHECK(agree(entropy(logits), -(log_p.exp() * log_p).sum(-1).mean().item<double>(), 1e-9));
  CHECK(agree(entropy(at::zeros({7, 16}, at::kHalf)), std::log(16.0), 1e-9));
}

TEST_CASE("a masked expert does not count in the entropy and NaN logits give NaN") {
  const at::Tensor logits = at::zeros({4, 8});
  logits.narrow(1, 0, 4).fill_(-std::numeric_limits<double>::infinity());
  CHECK(agree(entropy(logits), std::log(4.0), 1e-9));
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

TEST_CASE("kernel_norm is the largest singular value and sr the Frobenius norm over it") {
  for (const auto& [rows, columns] :
       {std::pair{1, 1}, {1, 9}, {9, 1}, {3, 3}, {64, 64}, {200, 40}, {40, 200}, {300, 256}}) {
    compare(at::randn({rows, columns}));
    compare(at::randn({rows, columns}) * 0.02 + 0.01);
  }
}

TEST_CASE("the largest singular value is found among others close to it") {
  const at::Tensor u = std::get<0>(at::randn({150, 150}, at::kDouble).svd());
  for (const double second : {1.0, 1 - 1e-8, 1 - 1e-5, 1 - 1e-3, 0.97}) {
    const at::Tensor values = at::linspace(0.1, second, 150, at::kDouble);
    values[0].fill_(1.0);
    const bool second_is_close = second > 1 - 1e-4;  // may be found instead of 1
    compare(at::matmul(u * values, u.t()), second_is_close ? std::max(1e-6, 1.1 * (1 - second)) : 1e-6);
  }
  compare(at::eye(70));
}

TEST_CASE("weights of any floating type and any strides are measured") {
  const at::Tensor weight = at::randn({80, 60});
  compare(weight.to(at::kHalf));
  compare(weight.to(at::kBFloat16));
  compare(weight.to(at::kDouble));
  compare(weight.t());
  compare(at::randn({80, 3, 60, 2}).select(3, 1).select(1, 2));
  compare(at::randn({60}).expand({80, 60}));
}

TEST_CASE("weights whose squares overflow or underflow are measured") {
  compare(at::randn({40, 30}) * 1e36);
  compare(at::randn({40, 30}) * 1e-36);
  compare(at::randn({40, 30}, at::kDouble) * 1e150);
}

TEST_CASE("a matrix of zeros has norm 0 and infinity or NaN in a weight becomes its norm") {
  const Spectrum none = measured(at::zeros({4, 5}));
  CHECK(none.kernel_norm == 0);
  CHECK(std::isnan(none.stable_rank()));
  at::Tensor weight = at::ones({4, 5});
  weight[1][2].fill_(std::numeric_limits<double>::infinity());
  CHECK(measured(weight).kernel_norm == std::numeric_limits<double>::infinity());
  CHECK(std::isnan(measured(weight).stable_rank()));
  weight[3][4].fill_(std::nan(""));
  CHECK(std::isnan(measured(weight).kernel_norm));
  CHECK(std::isnan(measured(weight).stable_rank()));
}

// Takes the path of a device tensor: sr and kernel_norm after `steps` steps; empty if not converged.
std::optional<std::pair<double, double>> spectrum_by_device_path(const at::Tensor& weight, int steps) {
  const c10::NoGradGuard no_grad;
  at::Tensor vector = at::randn({std::min(weight.size(0), weight.size(1))}, at::kDouble);
  vector = vector / vector.norm();
  std::optional<DeviceScalars::Values> values;
  for (int i = 0; i < steps; ++i) {
    DeviceBatch batch;
    batch.add(pending_spectrum(weight, vector));
    values = batch.resolve().front();
  }
  if (!values) return std::nullopt;
  return std::pair((*values)[0], (*values)[1]);
}

TEST_CASE("the device path converges to the same spectrum within six steps") {
  for (const auto& [rows, columns] :
       {std::pair{1, 1}, {1, 9}, {3, 3}, {64, 64}, {200, 40}, {40, 200}, {300, 256}}) {
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const at::Tensor weight = (at::randn({rows, columns}) * 0.02).to(type);
      const auto [sr, kernel_norm] = spectrum_by_device_path(weight, 6).value();
      const double wanted = largest_singular_value(weight);
      CAPTURE(rows, columns, kernel_norm, wanted);
      CHECK(agree(kernel_norm, wanted, 1e-5));
      CHECK(agree(sr, weight.to(at::kDouble).norm().item<double>() / wanted, 1e-5));
      if (const auto first = spectrum_by_device_path(weight, 1)) CHECK(first->second <= wanted * (1 + 1e-6));
    }
  }
  CHECK(agree(spectrum_by_device_path(at::eye(70), 1).value().second, 1));
}

TEST_CASE("on the device path too zeros have norm 0 and infinity or NaN becomes the norm") {
  const auto none = spectrum_by_device_path(at::zeros({4, 5}), 2).value();
  CHECK(none.second == 0);
  CHECK(std::isnan(none.first));
  at::Tensor weight = at::ones({4, 5});
  weight[1][2].fill_(std::numeric_limits<double>::infinity());
  CHECK(spectrum_by_device_path(weight, 1).value().second == std::numeric_limits<double>::infinity());
  CHECK(std::isnan(spectrum_by_device_path(weight, 1).value().first));
  weight[3][4].fill_(std::nan(""));
  CHECK(std::isnan(spectrum_by_device_path(weight, 1).value().second));
}

TEST_CASE("a weight that has changed little is measured with fewer products") {
  WeightSpectrum spectrum("layers.0.weight");
  const at::Tensor weight = at::randn({400, 300}) + 0.2;
  const int cold = measured(spectrum, weight).products;
  const at::Tensor next = weight + at::randn({400, 300}) * 1e-4;
  const Spectrum warm = measured(spectrum, next);
  CHECK(warm.products < cold);
  CHECK(agree(warm.kernel_norm, largest_singular_value(next)));
}

TEST_CASE("a singular value that grows past the tracked one is found") {
  WeightSpectrum spectrum("weight");
  at::Tensor weight = at::diag(at::linspace(0.1, 1, 50));
  CHECK(agree(measured(spectrum, weight).kernel_norm, 1));
  weight[0][0].fill_(2);
  CHECK(agree(measured(spectrum, weight).kernel_norm, 2));
  CHECK(agree(measured(spectrum, at::ones({3, 7})).kernel_norm, std::sqrt(21.0)));
}

TEST_CASE("the same weight under the same name gives the same bits") {
  const at::Tensor weight = at::randn({90, 120});
  CHECK(measured(weight).kernel_norm == measured(weight).kernel_norm);
}

TEST_CASE("measuring a spectrum leaves torch's random generator unchanged") {
  const at::Tensor weight = at::randn({90, 120});
  const auto generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = generator.get_state();
  measured(weight);
  CHECK(before.equal(generator.get_state()));
}

TEST_CASE("tensors without a spectrum are refused with the reason") {
  WeightSpectrum spectrum("weight");
  CHECK(spectrum.measure(at::Tensor()).error() == "the weight is not 2-D");
  CHECK(spectrum.measure(at::ones({2, 2, 2})).error() == "the weight is not 2-D");
  CHECK(spectrum.measure(at::ones({2, 2}, at::kInt)).error() == "the weight is not floating-point");
  CHECK(spectrum.measure(at::ones({0, 2})).error() == "the weight has no elements");
  CHECK(spectrum.measure(at::empty({2, 2}, at::kMeta)).error() == "meta tensor, or its storage is freed");
  at::Tensor freed = at::ones({20, 20});
  freed.storage().set_nbytes(0);
  CHECK(spectrum.measure(freed).error() == "meta tensor, or its storage is freed");
}

TEST_CASE("the device path gives no numbers until the spectrum has converged") {
  const at::Tensor weight = at::diag(at::linspace(0.1, 1, 900, at::kDouble));
  CHECK_FALSE(spectrum_by_device_path(weight, 1));
  const auto followed = spectrum_by_device_path(weight, 12);
  REQUIRE(followed);
  CHECK(agree(followed->second, 1, 5e-6));
}

}  // namespace
}  // namespace gradmon
