// SPDX-License-Identifier: Apache-2.0
// The largest singular value of a weight matrix, tracked from step to step.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "hooks/device/device_scalars.h"

namespace gradmon {

struct Spectrum {
  double kernel_norm = 0;  // ‖W‖₂, the largest singular value
  double frobenius = 0;    // ‖W‖_F
  int products = 0;        // products of WᵀW with a vector
  bool converged = true;   // false: kernel_norm may be too low, never too high
  // Not null: a device is still computing sr and kernel_norm (NaN until then), from the weight as it was at
  // the call. `converged` is then meaningless: if the device does not converge, it returns no values.
  PendingScalars pending;

  // sr as msprobe defines it: ‖W‖_F / ‖W‖₂ (Rudelson and Vershynin's stable rank is its square). NaN for a
  // zero matrix.
  double stable_rank() const {
    return kernel_norm > 0 ? frobenius / kernel_norm : std::numeric_limits<double>::quiet_NaN();
  }
};

// Lanczos iteration on WᵀW or WWᵀ, whichever is smaller (Golub and Van Loan, Matrix Computations,
// chapter 10). Each call starts at the singular vector that the previous call found, plus a thousandth of a
// random vector, so that a new largest value is not missed.
//
// Converged: ‖WᵀWx − θx‖ ≤ kTolerance · θ, with x the vector of norm 1 and θ = ‖Wx‖² the estimate. An
// eigenvalue is then that close to θ (usually far closer, because the error is of second order), so ‖W‖₂ is
// right to 1e-6, and to the rounding of products in float32 (double weight: double). If the two largest
// singular values are within 1e-4 of each other, the result may be the second: it was for 3 of 73 random
// matrices whose second singular value was 1 − 1e-5 times the first. After kProducts products the iteration
// stops with the best lower bound so far and `converged` false; the next call continues from there.
//
// On other devices than the CPU: pending_spectrum() of device_spectrum.h, started at the vector that the
// previous call found.
//
// One object for each weight; one thread at a time. Has its own random generator, seeded by the name, and
// does not use torch's.
class WeightSpectrum {
 public:
  static constexpr double kTolerance = 2e-6;
  static constexpr int kProducts = 384;

  explicit WeightSpectrum(std::string_view name);

  // `weight`: 2-D, real, of any floating type and strides, not empty; the error names the violated condition.
  // If the weight has a NaN, both norms are NaN; otherwise, if it has an infinity, both are infinite.
  // torch's exceptions pass through. Memory during the call: 48 vectors, and a float32 copy of a weight that
  // has 16 bits or no contiguous axis. Between calls: one vector of doubles.
  tl::expected<Spectrum, std::string> measure(const at::Tensor& weight);

 private:
  Spectrum begin_on_device(const at::Tensor& weight);
  at::Tensor first_vector(std::int64_t size, const at::Device& device);

  std::mt19937_64 random_;
  at::Tensor found_;  // of norm 1, on the weight's device; undefined before the first call
};

}  // namespace gradmon
