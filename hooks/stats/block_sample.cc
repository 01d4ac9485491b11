// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/block_sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "control/text/hash.h"

namespace gradmon {
namespace {

constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15;  // of SplitMix64

}  // namespace

SampledBlocks::SampledBlocks(const Sampling& sampling, std::size_t elements, std::size_t block)
    : group_(sampling.group),
      elements_(elements),
      block_(block),
      of_group_(group_ * block),
      key_(mixed(fnv_hash(sampling.name) + static_cast<std::uint64_t>(sampling.step))) {}

// Fisher and Yates, with the numbers of SplitMix64.
void SampledBlocks::shuffle(std::size_t run) {
  run_ = run;
  std::uint64_t state = mixed(key_ + run);
  const auto next = [&state] { return mixed(state += kGamma); };
  std::iota(places_.begin(), places_.begin() + static_cast<std::ptrdiff_t>(group_), std::uint8_t{0});
  for (std::size_t i = group_ - 1; i > 0; --i) std::swap(places_[i], places_[next() % (i + 1)]);
  rest_ = next();
}

// In the last group each element is chosen alike, so that a short block is not read too often.
SampledBlocks::Block SampledBlocks::operator[](std::size_t group) {
  if (run_ != group / group_) shuffle(group / group_);
  const std::size_t begin = group * of_group_, left = elements_ - begin;
  if (left >= of_group_) return {begin + places_[group % group_] * block_, block_, of_group_, true};
  const std::size_t first = rest_ % left / block_ * block_;
  return {begin + first, std::min(block_, left - first), left, false};
}

void Spread::add(const Spread& other) {
  if (other.weight == 0) return;
  const double all = weight + other.weight, apart = other.mean - mean;
  mean += apart * other.weight / all;
  deviations += other.deviations + apart * apart * weight / all * other.weight;
  weight = all;
}

void SampledStats::add(const SampledStats& other) {
  of_full_groups.add(other.of_full_groups);
  of_rest.add(other.of_rest);
  means.add(other.means);
  squares.add(other.squares);
}

// One block of each group, all groups as one collapsed stratum (Cochran, Sampling Techniques, 3rd edition,
// 5A.12): the variance between all blocks stands for that within a group, and is not smaller on average.
SampleEstimate estimate(const SampledStats& sample, std::uint32_t group, std::size_t elements,
                        std::size_t block) {
  const PartialStats &full = sample.of_full_groups, &rest = sample.of_rest;
  const double n = group, of_block = static_cast<double>(block);
  const double all = static_cast<double>(elements);
  const double of_full = static_cast<double>(full.elements), of_rest = static_cast<double>(rest.elements);
  const double last_group = all - n * of_full;
  const double rest_weight = of_rest > 0 ? last_group / of_rest : 0;
  const auto total = [&](double in_full, double in_rest) { return n * in_full + rest_weight * in_rest; };

  SampleEstimate found{};
  found.mean = total(full.sum, rest.sum) / all;
  found.norm = std::sqrt(total(full.sum_squares, rest.sum_squares));
  found.zeros = total(static_cast<double>(full.zeros), static_cast<double>(rest.zeros)) / all;
  found.share = (of_full + of_rest) / all;

  // The variance of a total is a sum over groups of (elements of the group)² · (1 − share read) / (elements
  // read) · the variance of one element's weight in a block's mean.
  const double groups = of_full / of_block + (of_rest > 0 ? 1 : 0), freedom = groups - 1;
  const double of_groups = n * n * (1 - 1 / n) * of_full +
                           (of_rest > 0 ? last_group * last_group * (1 - of_rest / last_group) / of_rest : 0);
  // Few blocks do not tell their variance well. So that 4 errors hold as often as those of a normal variable,
  // the quantile of Student's distribution there, by its expansion (Cornish and Fisher, 1938).
  const double few = 1 + 17 / (4 * freedom);
  const auto error = [&](const Spread& spread) {
    return few * std::sqrt(of_groups * spread.deviations / freedom);
  };
  found.mean_se = error(sample.means) / all;
  found.norm_se = found.norm == 0 ? 0 : error(sample.squares) / (2 * found.norm);
  return found;
}

}  // namespace gradmon
