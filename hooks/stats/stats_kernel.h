// SPDX-License-Identifier: Apache-2.0
// One pass over contiguous numbers, as fast as memory gives them (Highway, for
// the instructions found at run time). No torch, no state, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace gradmon {

// What one pass yields; several of them combine to that of the whole, exactly
// but for the rounding of sums. With NaN among the values, min and max hold
// nothing of use: whoever finishes looks at `nans` first.
struct PartialStats {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double sum_squares = 0;
  std::uint64_t elements = 0;
  std::uint64_t nans = 0;
  std::uint64_t zeros = 0;  // elements with abs(x) < eps, compared in double

  void add(const PartialStats& other);
  // As if every element had been there `times` times.
  void repeat(std::uint64_t times);
};

// Element types the kernel reads; float16 and bfloat16 as bit patterns.
enum class FloatType { float32, float64, float16, bfloat16 };

constexpr std::size_t size_of(FloatType type) {
  return type == FloatType::float64 ? 8 : type == FloatType::float32 ? 4 : 2;
}

// `data`: `count` elements, aligned for their type. Sums in double; the result
// for given data depends only on the instruction set.
PartialStats kernel_stats(FloatType type, const void* data, std::size_t count, double eps);

// The least float that is not below eps: for every float x, abs(x) < eps as
// doubles if and only if abs(x) < this as floats.
float float_threshold(double eps);

}  // namespace gradmon
