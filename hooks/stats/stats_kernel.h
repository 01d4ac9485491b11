// SPDX-License-Identifier: Apache-2.0
// Statistics of contiguous numbers in one pass, limited by memory bandwidth (Highway, for the instruction set
// found at run time). No torch, no state, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace gradmon {

// The result of one pass. add() combines the results of several parts, exactly except for the rounding of
// sums. min and max are meaningless if `nans` > 0.
struct PartialStats {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double sum_squares = 0;
  std::uint64_t elements = 0;
  std::uint64_t nans = 0;
  std::uint64_t zeros = 0;  // elements with abs(x) < eps, compared in double

  void add(const PartialStats& other);
  // The result for `times` copies of every element.
  void repeat(std::uint64_t times);
};

// Element types that the kernel reads; float16 and bfloat16 as bit patterns.
enum class FloatType { float32, float64, float16, bfloat16 };

constexpr std::size_t size_of(FloatType type) {
  return type == FloatType::float64 ? 8 : type == FloatType::float32 ? 4 : 2;
}

// `data`: `count` elements, aligned for their type. Sums are double; sums of float16 and bfloat16 are added
// in float 16 vectors at a time and may be off by 1e-6 of the sum of magnitudes. For the same data the result
// depends only on the instruction set.
PartialStats kernel_stats(FloatType type, const void* data, std::size_t count, double eps);

// float_threshold() for float16 and bfloat16: the bit pattern of the smallest value that is not below eps.
std::uint16_t half_threshold(FloatType type, double eps);

}  // namespace gradmon
