// SPDX-License-Identifier: Apache-2.0
// The largest singular value of a weight matrix, followed from step to step.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "hooks/stats/device_numbers.h"

namespace gradmon {

struct Spectrum {
  double kernel_norm = 0;  // ‖W‖₂, the largest singular value
  double frobenius = 0;    // ‖W‖_F
  int products = 0;        // of W with a vector and back that it took
  bool converged = true;   // false: kernel_norm may be too low, never too high
  // Not null: a device still computes sr and kernel_norm (both are NaN until
  // then), of the weight as it was, and it is not known whether it converges.
  PendingNumbers pending;

  // ‖W‖_F / ‖W‖₂, as msprobe defines sr (Rudelson and Vershynin's stable rank is
  // its square); NaN of a zero matrix.
  double stable_rank() const {
    return kernel_norm > 0 ? frobenius / kernel_norm : std::numeric_limits<double>::quiet_NaN();
  }
};

// Power iteration on WᵀW (or WWᵀ, the smaller), taking the best vector of all
// powers so far (Lanczos; Golub and Van Loan, Matrix Computations, chapter 10)
// and beginning with the vector found last time and a thousandth of a random
// one, so that a new largest value is not overlooked. It ends when, with x of
// length 1 the vector and θ = ‖Wx‖² the estimate, ‖WᵀWx − θx‖ ≤ kTolerance · θ: θ
// is then that close to an eigenvalue (and, its error being of second order, as a
// rule far closer), so ‖W‖₂ is right to one in a million, and to the rounding of
// products in float32 (double for double). That eigenvalue may be the second one where
// the two are within 1e-4 of each other: 3 of 73 random matrices whose second singular
// value is 1 - 1e-5 times the first had that. At kProducts it gives up, with the
// best lower bound so far, and says so; a later call goes on from there.
//
// On another device than the CPU it goes as device_spectrum.h says, each call on
// from the one before.
//
// One weight, one thread at a time. Draws from its own generator, seeded by the
// name: torch's is not touched.
class WeightSpectrum {
 public:
  static constexpr double kTolerance = 2e-6;
  static constexpr int kProducts = 384;

  explicit WeightSpectrum(std::string_view name);

  // `weight`: 2-D, real, of any floating type and strides, not empty; the error
  // says which of these it is not. With a NaN in it both norms are NaN, else with
  // an infinity both are that. What torch throws passes through. Memory while it
  // runs: 48 vectors, and a float32 copy of a weight of 16 bits or odd strides;
  // kept between calls: one vector of doubles.
  tl::expected<Spectrum, std::string> measure(const at::Tensor& weight);

 private:
  Spectrum begin_on_device(const at::Tensor& weight);
  at::Tensor first_vector(std::int64_t size, const at::Device& device);

  std::mt19937_64 random_;
  at::Tensor found_;  // of length 1, where the weight is; undefined before the first time
};

}  // namespace gradmon
