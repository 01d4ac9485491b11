// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/kernels.h"

#include <hwy/targets.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace gradmon {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Runs `check` once for each instruction set that this machine has.
template <typename Check>
void on_every_target(Check check) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    INFO("target " << hwy::TargetName(target));
    check();
  }
  hwy::SetSupportedTargetsForTest(0);
}

// The definition of torch.histc(x, bins=30, min=-1, max=1).
void count(BinCounts& counts, double x) {
  if (!(x >= -1 && x <= 1)) return;
  const auto bin = static_cast<std::size_t>((x + 1) * 30 / 2);
  ++counts[bin == 30 ? 29 : bin];
}

template <typename T>
AdamBins reference(const std::vector<T>& first, const std::vector<T>& second,
                   const AdamCorrections& corrections) {
  AdamBins bins;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double mean = static_cast<double>(first[i]) / corrections.first;
    const double root = std::sqrt(static_cast<double>(second[i]) / corrections.second);
    count(bins.update, mean / (root + corrections.eps));
    count(bins.ratio, mean / root);
  }
  return bins;
}

// With second moments of 1 and corrections of 1, the ratio is the first moment.
BinCounts ratios(const std::vector<double>& values) {
  const std::vector<double> ones(values.size(), 1.0);
  return kernel_adam_bins(values.data(), ones.data(), values.size(), {}).ratio;
}

BinCounts one_in(std::size_t bin) {
  BinCounts counts{};
  ++counts[bin];
  return counts;
}

std::uint64_t total(const BinCounts& counts) {
  std::uint64_t sum = 0;
  for (const std::uint64_t count_of_bin : counts) sum += count_of_bin;
  return sum;
}

}  // namespace

TEST_CASE("a bin has its lower edge and the last bin both") {
  on_every_target([] {
    CHECK(ratios({-1}) == one_in(0));
    CHECK(ratios({1}) == one_in(29));
    CHECK(ratios({std::nextafter(1.0, 0.0)}) == one_in(29));
    CHECK(ratios({0}) == one_in(15));
    CHECK(ratios({-0.0}) == one_in(15));
    CHECK(ratios({std::nextafter(0.0, -1.0)}) == one_in(15));  // -5e-324 + 1 is 1, as in torch
    CHECK(ratios({-1e-9}) == one_in(14));
    CHECK(ratios({0.2}) == one_in(18));  // 0.2 is just above 18 · 2 / 30 - 1
    CHECK(ratios({0.2 - 1e-12}) == one_in(17));
  });
}

TEST_CASE("values outside the range and values that are not numbers are in no bin") {
  on_every_target([] {
    const BinCounts none{};
    CHECK(ratios({std::nextafter(1.0, 2.0)}) == none);
    CHECK(ratios({std::nextafter(-1.0, -2.0)}) == none);
    CHECK(ratios({1e300, -1e300, kInfinity, -kInfinity, kNan}) == none);
    const double zero = 0, negative = -1, one = 1;
    CHECK(total(kernel_adam_bins(&one, &negative, 1, {1, 1, 1e-8}).update) == 0);
    const AdamBins at_rest = kernel_adam_bins(&zero, &zero, 1, {1, 1, 1e-8});
    CHECK(at_rest.update == one_in(15));
    CHECK(at_rest.ratio == none);  // 0 / 0
  });
}

TEST_CASE("the corrections correct the moments and eps is added to the root") {
  on_every_target([] {
    const double first = 0.1, second = 0.04;
    const AdamBins bins = kernel_adam_bins(&first, &second, 1, {0.5, 0.25, 0.6});
    CHECK(bins.ratio == one_in(22));   // 0.2 / 0.4
    CHECK(bins.update == one_in(18));  // 0.2 / 1, rounded up
  });
}

TEMPLATE_TEST_CASE("the kernel counts as the definition does for every length", "", float, double) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  for (const std::size_t length : {0, 1, 2, 3, 4, 5, 7, 15, 16, 255, 256, 257, 1000, 5003}) {
    std::vector<TestType> first(length), second(length);
    for (std::size_t i = 0; i < length; ++i) {
      first[i] = static_cast<TestType>(normal(random));
      second[i] = static_cast<TestType>(std::fabs(normal(random)));
      if (i % 37 == 5) first[i] = static_cast<TestType>(kNan);
      if (i % 41 == 7) second[i] = 0;
    }
    const AdamCorrections corrections{1 - std::pow(0.9, 7), 1 - std::pow(0.999, 7), 1e-3};
    const AdamBins expected = reference(first, second, corrections);
    on_every_target([&] {
      INFO("length " << length);
      const AdamBins bins = kernel_adam_bins(first.data(), second.data(), length, corrections);
      CHECK(bins.update == expected.update);
      CHECK(bins.ratio == expected.ratio);
    });
  }
}

TEST_CASE("the bins of two parts add up") {
  AdamBins all = {one_in(3), one_in(4)};
  all.add({one_in(3), one_in(5)});
  CHECK(all.update[3] == 2);
  CHECK(all.ratio[4] == 1);
  CHECK(all.ratio[5] == 1);
}

}  // namespace gradmon
