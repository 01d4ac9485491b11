// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/block_sample.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "hooks/stats/tensor_stats.h"
#include "tests/hooks/stats/thread_count.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

constexpr double kEps = 0.1;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

double value_of(const TensorStats& stats, Op op) { return stats.values[static_cast<std::size_t>(op)]; }

TensorStats sampled(const at::Tensor& tensor, const Sampling& sampling) {
  TensorStats stats;
  REQUIRE(read_in_memory(tensor, kEps, stats, sampling));
  return stats;
}

// The choice as METRICS.md publishes it.
std::uint64_t published_mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27;
  x *= 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

struct ChosenBlock {
  std::int64_t first, size, of_group;
};

std::vector<ChosenBlock> published_choice(const std::string& name, std::int64_t step, std::int64_t group,
                                          std::int64_t elements, std::int64_t block) {
  std::uint64_t key = 14695981039346656037U;
  for (const unsigned char c : name) key = (key ^ c) * 1099511628211U;
  key = published_mix(key + static_cast<std::uint64_t>(step));
  std::vector<ChosenBlock> chosen;
  std::vector<std::int64_t> places(static_cast<std::size_t>(group));
  std::uint64_t state = 0;
  const auto next = [&] { return published_mix(state += 0x9e3779b97f4a7c15); };
  for (std::int64_t g = 0, begin = 0; begin < elements; ++g, begin += group * block) {
    if (g % group == 0) {
      state = published_mix(key + static_cast<std::uint64_t>(g / group));
      std::iota(places.begin(), places.end(), 0);
      for (std::size_t i = places.size() - 1; i > 0; --i) std::swap(places[i], places[next() % (i + 1)]);
    }
    const std::int64_t of_group = std::min(group * block, elements - begin);
    std::int64_t first = begin + places[static_cast<std::size_t>(g % group)] * block;
    if (of_group < group * block) {
      const auto element = static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(of_group));
      first = begin + element / block * block;
    }
    chosen.push_back({first, std::min(block, elements - first), of_group});
  }
  return chosen;
}

struct Expected {
  double min, max, mean, norm, nans, zeros, share, mean_se, norm_se;
};

// By torch, in double.
Expected expected_of(const at::Tensor& tensor, const Sampling& sampling) {
  const at::Tensor flat = tensor.reshape(-1).to(at::kDouble);
  const std::int64_t elements = flat.numel(), group = sampling.group;
  const auto block = static_cast<std::int64_t>(kSampleBlock / tensor.element_size());
  const auto chosen = published_choice(std::string(sampling.name), sampling.step, group, elements, block);
  std::vector<at::Tensor> blocks, means, squares, sizes, of_groups;
  double total = 0, total_squares = 0, zeros = 0;
  const auto scalar = [](double x) { return at::full({1}, x, at::kDouble); };
  for (const ChosenBlock& one : chosen) {
    const at::Tensor x = flat.slice(0, one.first, one.first + one.size);
    const auto of_group = static_cast<double>(one.of_group);
    blocks.push_back(x);
    means.push_back(x.mean().view(1));
    squares.push_back(x.square().mean().view(1));
    sizes.push_back(scalar(static_cast<double>(one.size)));
    of_groups.push_back(scalar(of_group));
    total += of_group * x.mean().item<double>();
    total_squares += of_group * x.square().mean().item<double>();
    zeros += of_group * x.abs().lt(kEps).to(at::kDouble).mean().item<double>();
  }
  const auto all = static_cast<double>(elements);
  const at::Tensor read = at::cat(blocks), n = at::cat(sizes), of_group = at::cat(of_groups);
  const double freedom = static_cast<double>(chosen.size()) - 1;
  const auto error = [&](const at::Tensor& of_blocks) {
    const at::Tensor mean = (of_blocks * n).sum() / n.sum();
    const at::Tensor variance = ((of_blocks - mean).square() * n).sum() / freedom;
    const at::Tensor of_total = (of_group.square() * (1 - n / of_group) * variance / n).sum();
    return std::sqrt(of_total.item<double>()) * (1 + 17 / (4 * freedom));
  };
  const double norm = std::sqrt(total_squares);
  return {read.min().item<double>(),
          read.max().item<double>(),
          total / all,
          norm,
          read.isnan().sum().to(at::kDouble).item<double>(),
          zeros / all,
          static_cast<double>(read.numel()) / all,
          error(at::cat(means)) / all,
          norm == 0 ? 0 : error(at::cat(squares)) / (2 * norm)};
}

bool near(double found, double expected, double tolerance) {
  if (std::isnan(expected)) return std::isnan(found);
  return found == expected || std::fabs(found - expected) <= tolerance;
}

void check_as_torch(const at::Tensor& tensor, const Sampling& sampling) {
  INFO(tensor.toString() << " of " << tensor.numel() << ", one block of " << sampling.group);
  const TensorStats stats = sampled(tensor, sampling);
  const Expected expected = expected_of(tensor, sampling);
  const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  const double tolerance = half ? 2e-6 : 1e-11;
  const double magnitude = expected.norm / std::sqrt(static_cast<double>(tensor.numel()));
  CHECK(near(value_of(stats, Op::min), expected.min, 0));
  CHECK(near(value_of(stats, Op::max), expected.max, 0));
  CHECK(near(value_of(stats, Op::mean), expected.mean, tolerance * magnitude));
  CHECK(near(value_of(stats, Op::norm), expected.norm, tolerance * expected.norm));
  CHECK(value_of(stats, Op::nans) == expected.nans);
  CHECK(near(value_of(stats, Op::zeros), expected.zeros, 1e-12));
  CHECK(near(stats.sample.share, expected.share, 1e-15));
  CHECK(near(stats.sample.mean_se, expected.mean_se, tolerance * magnitude));
  CHECK(near(stats.sample.norm_se, expected.norm_se, tolerance * expected.norm));
}

TEST_CASE("a sample has the values that torch computes in double from the published blocks") {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const auto item = static_cast<std::int64_t>(c10::elementSize(type));
    const std::int64_t group = 16 * 4096 / item;
    for (const std::int64_t more : {std::int64_t{1}, group - 1, group, std::int64_t{5000}, 17 * group + 77})
      check_as_torch(at::randn({kMiB / item + more}).add(0.25).to(type), {16, "fc1.weight", 7});
    for (const std::uint32_t blocks : {2U, 3U, 64U})
      check_as_torch(at::randn({2 * kMiB / item + 1234}).to(type), {blocks, "layers.3.output", 12345});
  }
  for (const auto type : {at::kChar, at::kByte, at::kShort, at::kInt, at::kLong})
    check_as_torch(at::randint(0, 100, {3 * kMiB / 2 + 11}, type), {16, "tokens", 1});
  check_as_torch(at::randn({3 * kMiB / 2}).gt(0), {16, "mask", 1});
}

TEST_CASE("a tensor of 64 MiB, which several threads read, has the same sample on one and on two") {
  const at::Tensor x = at::randn({16 * kMiB + 4321});
  const Sampling sampling{16, "large", 3};
  check_as_torch(x, sampling);
  TensorStats on_one, on_two;
  {
    const ThreadCount one(1);
    on_one = sampled(x, sampling);
  }
  {
    const ThreadCount two(2);
    on_two = sampled(x, sampling);
  }
  CHECK(on_one.values == on_two.values);
  CHECK(on_one.sample.norm_se == on_two.sample.norm_se);
}

TEST_CASE("a tensor of at most 1 MiB, and one with gaps in memory, is read whole") {
  const Sampling sampling{16, "x", 1};
  for (const at::Tensor& x : {at::randn({kMiB / 4}), at::randn({1024, 2048}).slice(1, 0, 1000),
                              at::randn({kMiB}).expand({4, kMiB})}) {
    const TensorStats stats = sampled(x, sampling);
    CHECK(stats.sample.share == 0);
    CHECK(near(value_of(stats, Op::norm), x.to(at::kDouble).norm().item<double>(), 1e-6));
  }
  CHECK(sampled(at::randn({kMiB / 4 + 1}), sampling).sample.share > 0);
  CHECK(sampled(at::randn({kMiB}), {1, "x", 1}).sample.share == 0);
}

TEST_CASE("a transposed tensor without gaps is sampled in the order of its memory") {
  const at::Tensor x = at::randn({1500, 1000});
  const Sampling sampling{16, "x", 1};
  CHECK(sampled(x.t(), sampling).values == sampled(x, sampling).values);
}

TEST_CASE("each run of groups reads every place within a group once, by name and step") {
  constexpr std::size_t group = 16, block = 1024;
  const auto places = [&](const Sampling& sampling, std::size_t run) {
    SampledBlocks blocks(sampling, 64 * group * block, block);
    std::vector<std::size_t> found;
    for (std::size_t g = run * group; g < (run + 1) * group; ++g)
      found.push_back((blocks[g].first - g * group * block) / block);
    return found;
  };
  const auto first = places({group, "x", 1}, 0);
  CHECK(std::set<std::size_t>(first.begin(), first.end()).size() == group);
  CHECK(places({group, "x", 1}, 0) == first);
  CHECK(places({group, "x", 1}, 1) != first);
  CHECK(places({group, "x", 2}, 0) != first);
  CHECK(places({group, "y", 1}, 0) != first);
}

TEST_CASE("the estimates are right on average, also of a last group that is not full") {
  at::Tensor x = at::zeros({kMiB / 4 + 3 * 1024 + 7}, at::kDouble);
  x.slice(0, 0, 512).fill_(100);    // a block of the first group
  x.slice(0, kMiB / 4).fill_(100);  // the last group
  x.slice(0, x.numel() - 7).fill_(300);
  const double mean = x.mean().item<double>(), square = x.square().mean().item<double>();
  double means = 0, squares = 0;
  constexpr int kSteps = 4000;
  for (int step = 0; step < kSteps; ++step) {
    const TensorStats stats = sampled(x, {16, "x", step});
    means += value_of(stats, Op::mean) / kSteps;
    squares += std::pow(value_of(stats, Op::norm), 2) / static_cast<double>(x.numel()) / kSteps;
  }
  CHECK(std::fabs(means - mean) < 0.04 * mean);
  CHECK(std::fabs(squares - square) < 0.04 * square);
}

TEST_CASE("equal elements leave no error, and NaN and infinities show if they are in the sample") {
  const Sampling sampling{16, "x", 1};
  const TensorStats equal = sampled(at::full({kMiB}, 0.5), sampling);
  CHECK(value_of(equal, Op::mean) == 0.5);
  CHECK(value_of(equal, Op::norm) == 512);
  CHECK(equal.sample.mean_se == 0);
  CHECK(equal.sample.norm_se == 0);
  CHECK(sampled(at::zeros({kMiB}), sampling).sample.norm_se == 0);
  const TensorStats nan = sampled(at::full({kMiB}, std::nan("")), sampling);
  CHECK(value_of(nan, Op::nans) == static_cast<double>(kMiB / 16));
  for (const double value : {value_of(nan, Op::min), value_of(nan, Op::mean), value_of(nan, Op::norm),
                             nan.sample.mean_se, nan.sample.norm_se})
    CHECK(std::isnan(value));
  const TensorStats infinite = sampled(at::full({kMiB}, std::numeric_limits<float>::infinity()), sampling);
  CHECK(std::isinf(value_of(infinite, Op::norm)));
  CHECK(std::isnan(infinite.sample.norm_se));
}

// Elements of one of several distributions, made of normal ones, of which each tensor takes others.
at::Tensor drawn(const at::Tensor& normal, int number, std::int64_t elements) {
  const auto others = [&](std::int64_t from) {
    const std::int64_t first = (from + 4099 * number) % (normal.numel() - elements);
    return normal.slice(0, first, first + elements);
  };
  const at::Tensor x = others(0);
  switch (number % 6) {
    case 0:
      return x;
    case 1:
      return x.sigmoid().add(3);
    case 2:
      return x.square().add(others(kMiB).square());  // exponential
    case 3:
      return x * others(kMiB);  // with tails heavier than Laplace's
    case 4:
      return x * at::arange(elements, at::kFloat).div(static_cast<double>(elements));
    default: {  // channels of one block each, which return every 16 blocks
      const at::Tensor scales = others(2 * kMiB).slice(0, 0, 16).exp().view({16, 1}).expand({16, 1024});
      return x.add(0.5) * scales.reshape(-1).repeat(elements / 16384 + 1).slice(0, 0, elements);
    }
  }
}

TEST_CASE("mean and norm are within 4 standard errors in 999 of 1,000 tensors") {
  at::manual_seed(3);
  const at::Tensor normal = at::randn({8 * kMiB});
  constexpr int kTensors = 1000;
  int beyond_mean = 0, beyond_norm = 0;
  double mean_errors = 0, norm_errors = 0;  // squared, in standard errors
  for (int i = 0; i < kTensors; ++i) {
    const std::int64_t elements = kMiB / 4 + 1 + 2557 * i % (kMiB / 4);
    const at::Tensor x = drawn(normal, i, elements);
    const TensorStats stats = sampled(x, {16, "t" + std::to_string(i), i});
    const double mean = x.mean(at::kDouble).item<double>(), norm = x.to(at::kDouble).norm().item<double>();
    const double of_mean = std::fabs(value_of(stats, Op::mean) - mean) / stats.sample.mean_se;
    const double of_norm = std::fabs(value_of(stats, Op::norm) - norm) / stats.sample.norm_se;
    beyond_mean += of_mean > 4;
    beyond_norm += of_norm > 4;
    mean_errors += of_mean * of_mean / kTensors;
    norm_errors += of_norm * of_norm / kTensors;
  }
  CHECK(beyond_mean <= 1);
  CHECK(beyond_norm <= 1);
  // The standard errors are no bounds that hold always.
  CHECK((mean_errors > 0.3 && mean_errors < 1.2));
  CHECK((norm_errors > 0.3 && norm_errors < 1.2));
}

}  // namespace
}  // namespace gradmon
