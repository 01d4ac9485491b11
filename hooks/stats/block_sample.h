// SPDX-License-Identifier: Apache-2.0
// Samples of large tensors: which blocks are read, and what they tell of the whole (METRICS.md, "Samples").
// No torch; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "control/vocabulary.h"
#include "hooks/stats/kernels.h"

namespace gradmon {

inline constexpr std::size_t kSampleBlock = 4096;                    // bytes of a block
inline constexpr std::size_t kMostReadWhole = std::size_t{1} << 20;  // bytes of a tensor

// A row's sample. It does not own the name.
struct Sampling {
  std::uint32_t group = 1;  // blocks of a group, at most kMostSample; 1: all blocks are read
  std::string_view name = {};
  std::int64_t step = 0;
};

// The blocks that are read of an array, by group.
class SampledBlocks {
 public:
  struct Block {
    std::size_t first, size;  // elements
    std::size_t of_group;     // elements of the whole group
    bool in_full_group;
  };

  // The array has `elements` elements, and a block `block` of them.
  SampledBlocks(const Sampling& sampling, std::size_t elements, std::size_t block);

  std::size_t groups() const { return (elements_ + of_group_ - 1) / of_group_; }
  // Shuffles for the first group of each `group` groups: ask for groups in order.
  Block operator[](std::size_t group);

 private:
  void shuffle(std::size_t run);

  const std::size_t group_, elements_, block_, of_group_;
  const std::uint64_t key_;
  // A run of `group_` groups reads each place within a group once.
  std::size_t run_ = ~std::size_t{0};
  std::array<std::uint8_t, kMostSample> places_{};
  std::uint64_t rest_ = 0;  // chooses the block of a last, smaller group
};

// A weighted mean, and the sum of the weighted squares of the deviations from it.
struct Spread {
  double weight = 0;
  double mean = 0;
  double deviations = 0;

  // As Chan, Golub and LeVeque combine parts (Updating formulae and a pairwise algorithm for computing sample
  // variances, 1979).
  void add(const Spread& other);
};

// The numbers of the blocks that were read.
struct SampledStats {
  PartialStats of_full_groups;
  PartialStats of_rest;   // of the last group, if it is smaller
  Spread means, squares;  // of the blocks' means and mean squares, weighted by elements

  void add(const SampledStats& other);
};

// The estimates for all elements.
struct SampleEstimate {
  double mean, norm, zeros;
  double share;             // of the elements, that was read
  double mean_se, norm_se;  // standard errors
};
// `group`, `elements`, `block`: as for SampledBlocks.
SampleEstimate estimate(const SampledStats& sample, std::uint32_t group, std::size_t elements,
                        std::size_t block);

}  // namespace gradmon
