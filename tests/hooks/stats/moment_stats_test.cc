// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/moment_stats.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <torch/version.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/hooks/stats/thread_count.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-3;

AdamStep step(double steps) { return {kBeta1, kBeta2, kEps, steps}; }

BinCounts counts_of(const at::Tensor& histogram) {
  BinCounts counts{};
  for (std::size_t bin = 0; bin < kBins; ++bin)
    counts[bin] = static_cast<std::uint64_t>(histogram[static_cast<std::int64_t>(bin)].item<double>());
  return counts;
}

// torch's own ops, in double.
AdamBins by_torch(const at::Tensor& first, const at::Tensor& second, double steps) {
  const at::Tensor mean = first.to(at::kDouble) / (1 - std::pow(kBeta1, steps));
  const at::Tensor root = (second.to(at::kDouble) / (1 - std::pow(kBeta2, steps))).sqrt();
  return {counts_of(at::histc(mean / (root + kEps), 30, -1, 1)),
          counts_of(at::histc(mean / root, 30, -1, 1))};
}

void check_same(const AdamBins& found, const AdamBins& expected) {
  CHECK(found.update == expected.update);
  CHECK(found.ratio == expected.ratio);
}

AdamBins bins_of(const at::Tensor& first, const at::Tensor& second, double steps) {
  const auto histograms = adam_histograms(first, second, step(steps));
  REQUIRE(histograms);
  CHECK_FALSE(histograms->pending.defined());
  return histograms->bins;
}

TEST_CASE("histograms are those of torch.histc for every type of the moments") {
  at::manual_seed(3);
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const auto other : {type, at::kFloat}) {
      const at::Tensor first = at::randn({70, 60}).to(type);
      const at::Tensor second = at::randn({70, 60}).square().to(other);
      check_same(bins_of(first, second, 4), by_torch(first, second, 4));
    }
  }
}

TEST_CASE("moments of any strides are read element by element") {
  at::manual_seed(4);
  const at::Tensor first = at::randn({40, 30}), second = at::randn({40, 30}).square();
  const AdamBins expected = by_torch(first, second, 9);
  check_same(bins_of(first.t(), second.t(), 9), expected);
  check_same(bins_of(first.t().contiguous().t(), second, 9), expected);
  const at::Tensor wide_first = at::randn({40, 60}), wide_second = at::randn({40, 60}).square();
  const at::Tensor some_first = wide_first.narrow(1, 7, 30), some_second = wide_second.narrow(1, 20, 30);
  check_same(bins_of(some_first, some_second, 9), by_torch(some_first, some_second, 9));
}

TEST_CASE("the histograms of a large tensor do not depend on the number of threads") {
  at::manual_seed(5);
  const at::Tensor first = at::randn({700'001}), second = at::randn({700'001}).square();
  const AdamBins expected = by_torch(first, second, 2);
  for (const int threads : {1, 2, 3}) {
    const ThreadCount count(threads);
    check_same(bins_of(first, second, 2), expected);
  }
}

TEST_CASE("moments that cannot be read or do not match have no histograms") {
  const at::Tensor one = at::ones({4});
  CHECK(adam_histograms(one, at::ones({5}), step(1)).error() == "exp_avg and exp_avg_sq differ in size");
  CHECK(adam_histograms(at::complex(one, one), one, step(1)).error() == "exp_avg is not floating-point");
  CHECK(adam_histograms(one, one.to_sparse(), step(1)).error() == "exp_avg_sq is not dense");
  CHECK(adam_histograms(at::empty({4}, at::kMeta), one, step(1)).error() ==
        "meta tensor, or its storage is freed");
}

// The path of devices, with tensors of the CPU, because there may be no other device. In float32, so that a
// value at an edge may be in the neighbouring bin; values are therefore chosen in the middle of bins.
TEST_CASE("the ops for devices count as the kernel does") {
  const c10::NoGradGuard no_grad;
  at::manual_seed(6);
  const at::Tensor middles = (at::randint(-2, 32, {5000}).to(at::kDouble) + 0.5) / 15 - 1;
  const at::Tensor second = at::randn({5000}, at::kDouble).square() + 0.1;
  const double steps = 12;
  const at::Tensor root = (second / (1 - std::pow(kBeta2, steps))).sqrt();
  const at::Tensor first = middles * root * (1 - std::pow(kBeta1, steps));
  AdamStep with_eps_0 = step(steps);
  with_eps_0.eps = 0;
  const auto expected = adam_histograms(first, second, with_eps_0);
  for (const bool deterministic : {false, true}) {
    at::globalContext().setDeterministicAlgorithms(deterministic, true);
    for (const bool counted_on_device : {false, true}) {
      AdamStep with = with_eps_0;
      if (counted_on_device) with = {kBeta1, kBeta2, 0, -1, at::full({1}, steps)};
      for (const auto type : {at::kDouble, at::kFloat}) {
        AdamHistograms pending;
        pending.pending = pending_adam_histograms(first.to(type), second.to(type), with);
        AdamHistograms known = *expected;
        resolve_pending({&known, &pending});
        check_same(pending.bins, expected->bins);
        check_same(known.bins, expected->bins);
        CHECK_FALSE(pending.pending.defined());
      }
    }
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST_CASE("the ops for devices do not mind NaN and infinities") {
  const c10::NoGradGuard no_grad;
  at::Tensor first = at::full({6}, 0.5), second = at::ones({6});
  // torch 1.13's histc counts a NaN on the CPU, though not on a CUDA device.
  first[0] = TORCH_VERSION_MAJOR < 2 ? 2e6 : std::nan("");
  first[1] = std::numeric_limits<double>::infinity();
  first[2] = -std::numeric_limits<double>::infinity();
  for (const bool deterministic : {false, true}) {
    at::globalContext().setDeterministicAlgorithms(deterministic, true);
    AdamHistograms pending;
    pending.pending = pending_adam_histograms(first, second, step(1e6));
    resolve_pending({&pending});
    CHECK(pending.bins.ratio[22] == 3);
    CHECK(std::accumulate(pending.bins.ratio.begin(), pending.bins.ratio.end(), 0) == 3);
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
}

}  // namespace
}  // namespace gradmon
