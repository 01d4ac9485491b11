// SPDX-License-Identifier: Apache-2.0
// Entropy and maximum of the attention weights softmax(Q Kᵀ / √d), averaged over all rows of all heads of
// all batches.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <tl/expected.hpp>

#include "control/vocabulary.h"
#include "hooks/device/device_scalars.h"

namespace gradmon {

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
