// SPDX-License-Identifier: Apache-2.0
// The features of `l2_targets`: the largest singular value of a weight matrix, tracked from step to step; the
// similarity of a router's experts and the entropy of its decisions; the entropy and maximum of attention
// weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "control/vocabulary.h"
#include "hooks/device/device_stats.h"

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
// On other devices than the CPU: pending_spectrum(), started at the vector that the
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

// WeightSpectrum for other devices. Takes a fixed number of products, because a test for
// convergence would wait for the device: one Lanczos run of kDeviceProducts products that starts at `vector`.
// The numbers are sr and kernel_norm, in this order; there are none unless ‖WᵀWx − θx‖ ≤ 1e-5 · θ (see
// WeightSpectrum). kernel_norm is never too high, and right to 5e-6 (rarely of the second singular value,
// as there). A run that starts at the vector of the previous run, on a slightly different weight, goes on
// where that run stopped.
//
// `weight`: 2-D, strided, real, not empty, of any floating type. `vector`: doubles on the weight's device,
// with the size of the shorter side and the norm 1; replaced by the singular vector found (NaN if the weight
// is not finite). Memory until the device is done: 48 vectors, and a copy of the weight in float32 (double
// weight: double). Queued on the current stream. Call with gradient mode off. Throws what torch throws.
inline constexpr int kDeviceProducts = 48;
PendingScalars pending_spectrum(const at::Tensor& weight, at::Tensor& vector);

// Similarity of the expert vectors of a mixture-of-experts router, and entropy of its decisions.
struct RouterFeature {
  double value = 0;
  PendingScalars pending;  // not null: a device is still computing `value` (NaN until then)
};

// Both functions: real floating point of any type and strides, values as of the call; computed in double.
// Tensors and gradient mode stay unchanged, no gradient is recorded. The error is the reason why the tensor
// has no such number; torch's exceptions pass through.

// Mean cosine similarity over the N(N − 1)/2 pairs of expert vectors w_i. With ŵ_i = w_i / ‖w_i‖ it is
// (‖Σ ŵ_i‖² − Σ ‖ŵ_i‖²) / (N(N − 1)), which costs N · d. The similarities of a zero vector are 0, as in
// torch's cosine_similarity. `weight`: 2-D, with at least two experts along the shorter side, as in msprobe
// (square: along the rows).
tl::expected<RouterFeature, std::string> router_cosine(const at::Tensor& weight);

// −Σ_e p_e log p_e in nats (Shannon's), p = softmax over the last dimension, averaged over the other
// dimensions (tokens). An expert with the logit −inf has p = 0.
tl::expected<RouterFeature, std::string> router_entropy(const at::Tensor& logits);

// Entropy and maximum of the attention weights softmax(Q Kᵀ / √d), averaged over all rows of all heads of
// all batches.
struct AttentionFeatures {
  double entropy = 0;      // mean over rows of −Σ_j p_j log p_j, in nats (Shannon's)
  double softmax_max = 0;  // mean over rows of max_j p_j
  // Not null: a device is still computing both (NaN until then), from Q and K as they were at the call.
  PendingScalars pending;
};

// Q and K: 4-D, real floating point, equal batch size and head size, any strides. K may have fewer heads:
// each head of K then serves a group of consecutive heads of Q (grouped queries).
//
// On the CPU: computed in tiles in float32 (in double if Q or K is double), on torch's threads; the result
// does not depend on their number. Scratch is about 256 · d numbers per thread, whatever the sequence
// lengths, plus float copies of Q and K if they have 16 bits or their last axis is not contiguous. On other
// devices: torch's ops, queued, 64 MiB of float32 scores at a time.
//
// `causal`: query i sees the keys 0 … i, also if the numbers of queries and keys differ (upper-left mask, as
// in torch's scaled_dot_product_attention; msprobe supports square masks only). Other masks are not
// supported. A row that sees a NaN or +inf score, or only −inf scores, makes both results NaN. A −inf score
// beside finite scores has the weight 0.
//
// The error is the reason why the tensors have no features: not 4-D, no elements, meta … Autocast does not
// change the result. Tensors and gradient mode stay unchanged; torch's exceptions pass through.
tl::expected<AttentionFeatures, std::string> attention_features(const at::Tensor& q, const at::Tensor& k,
                                                                AxisOrder order, Causal causal);

// The version for other devices: queued on the device of Q and K, does not wait. Q and K as above, with axes
// [b, h, s, d]. Call with gradient mode off.
PendingScalars pending_attention_features(const at::Tensor& q, const at::Tensor& k, Causal causal);

}  // namespace gradmon
