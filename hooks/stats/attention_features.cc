// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/l2_features.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/xlogy.h>
#include <c10/core/DispatchKeySet.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "hooks/device/device_stats.h"
#include "hooks/stats/kernels.h"
#include "hooks/stats/readable.h"

namespace gradmon {
namespace {

constexpr std::int64_t kQueries = 384;                         // of one head, in one unit of work
constexpr std::int64_t kDeviceScores = std::int64_t{1} << 24;  // scores at a time on other devices

std::string why_not_comparable(const at::Tensor& q, const at::Tensor& k) {
  if (!q.defined() || !k.defined() || q.dim() != 4 || k.dim() != 4) return "Q and K are not 4-D";
  if (std::string why = why_unreadable(q, "Q"); !why.empty()) return why;
  if (std::string why = why_unreadable(k, "K"); !why.empty()) return why;
  if (q.device() != k.device()) return "Q and K are on different devices";
  if (q.size(3) != k.size(3)) return "Q and K have different head sizes";
  return "";
}

// The tensor with axes [b, h, s, d], as `type`, with a contiguous last axis.
at::Tensor arranged(const at::Tensor& tensor, AxisOrder order, c10::ScalarType type) {
  at::Tensor x = order == AxisOrder::sbhd ? tensor.permute({1, 2, 0, 3}) : tensor.permute({0, 2, 1, 3});
  if (x.is_neg()) x = x.resolve_neg();
  if (x.scalar_type() != type) x = x.to(type);
  return x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous();
}

// The sums of one unit of work: up to kQueries consecutive queries of one head.
template <typename T>
AttentionSums sums_of(const at::Tensor& q, const at::Tensor& k, Causal causal, std::int64_t unit) {
  const std::int64_t blocks = (q.size(2) + kQueries - 1) / kQueries;
  const std::int64_t first = unit % blocks * kQueries;
  const std::int64_t head = unit / blocks % q.size(1);
  const std::int64_t batch = unit / blocks / q.size(1);
  const std::int64_t key_head = head / (q.size(1) / k.size(1));
  AttentionBlock<T> block;
  block.queries =
      static_cast<const T*>(q.data_ptr()) + batch * q.stride(0) + head * q.stride(1) + first * q.stride(2);
  block.query_stride = q.stride(2);
  block.query_count = static_cast<std::size_t>(std::min(kQueries, q.size(2) - first));
  block.first_query = static_cast<std::size_t>(first);
  block.keys = static_cast<const T*>(k.data_ptr()) + batch * k.stride(0) + key_head * k.stride(1);
  block.key_stride = k.stride(2);
  block.key_count = static_cast<std::size_t>(k.size(2));
  block.width = static_cast<std::size_t>(q.size(3));
  block.scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  block.causal = causal;
  return attention_sums(block);
}

template <typename T>
AttentionFeatures in_memory(const at::Tensor& q, const at::Tensor& k, Causal causal) {
  const std::int64_t units = q.size(0) * q.size(1) * ((q.size(2) + kQueries - 1) / kQueries);
  std::vector<AttentionSums> sums(static_cast<std::size_t>(units));
  std::atomic<std::int64_t> next{0};  // next unit for a free thread; later queries cost more
  at::parallel_for(0, std::min<std::int64_t>(at::get_num_threads(), units), 1,
                   [&](std::int64_t, std::int64_t) {
                     for (std::int64_t unit = next++; unit < units; unit = next++) {
                       sums[static_cast<std::size_t>(unit)] = sums_of<T>(q, k, causal, unit);
                     }
                   });
  AttentionFeatures features;
  for (const AttentionSums& part : sums) {
    features.entropy += part.entropy;
    features.softmax_max += part.softmax_max;
  }
  const auto rows = static_cast<double>(q.size(0) * q.size(1) * q.size(2));
  return {features.entropy / rows, features.softmax_max / rows, {}};
}

// Entropy and maximum, summed over the rows of queries [g, i, d]; the g heads share the keys [j, d].
at::Tensor device_sums(const at::Tensor& q, const at::Tensor& k, std::int64_t first, Causal causal) {
  at::Tensor scores = at::matmul(q, k.t()) * (1 / std::sqrt(static_cast<double>(q.size(2))));
  if (causal == Causal::yes) {
    const auto keys = at::arange(k.size(0), k.options().dtype(at::kLong));
    const auto queries = at::arange(first, first + q.size(1), k.options().dtype(at::kLong));
    scores.masked_fill_(keys.unsqueeze(0) > queries.unsqueeze(1), -std::numeric_limits<double>::infinity());
  }
  const at::Tensor p = scores.softmax(-1);
  return at::stack({-at::xlogy(p, p).sum(at::kDouble), p.amax(-1).sum(at::kDouble)});
}

std::optional<DeviceScalars::Values> means(const double* sums, double rows) {
  return DeviceScalars::Values{sums[0] / rows, sums[1] / rows};
}

}  // namespace

PendingScalars pending_attention_features(const at::Tensor& q, const at::Tensor& k, Causal causal) {
  const std::int64_t group = q.size(1) / k.size(1);
  const std::int64_t step = std::max<std::int64_t>(1, kDeviceScores / (group * k.size(2)));
  at::Tensor sums;
  for (std::int64_t batch = 0; batch < q.size(0); ++batch) {
    for (std::int64_t head = 0; head < k.size(1); ++head) {
      const at::Tensor queries = q.select(0, batch).narrow(0, head * group, group);
      const at::Tensor keys = k.select(0, batch).select(0, head);
      for (std::int64_t first = 0; first < q.size(2); first += step) {
        const at::Tensor block = queries.narrow(1, first, std::min(step, q.size(2) - first));
        const at::Tensor part = device_sums(block, keys, first, causal);
        sums = sums.defined() ? sums + part : part;
      }
    }
  }
  const auto rows = static_cast<double>(q.size(0) * q.size(1) * q.size(2));
  return pack_scalars({sums[0], sums[1]}, rows, means);
}

tl::expected<AttentionFeatures, std::string> attention_features(const at::Tensor& q, const at::Tensor& k,
                                                                AxisOrder order, Causal causal) {
  if (std::string why = why_not_comparable(q, k); !why.empty()) return tl::unexpected(std::move(why));
  const PlainTorch plain;
  const bool wide = q.scalar_type() == at::kDouble || k.scalar_type() == at::kDouble;
  const at::Tensor queries = arranged(q, order, wide ? at::kDouble : at::kFloat);
  const at::Tensor keys = arranged(k, order, wide ? at::kDouble : at::kFloat);
  if (queries.size(0) != keys.size(0))
    return tl::unexpected<std::string>("Q and K have different batch sizes");
  if (queries.size(1) % keys.size(1) != 0) {
    return tl::unexpected<std::string>("the number of Q heads is not a multiple of the number of K heads");
  }
  if (!q.device().is_cpu()) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    return AttentionFeatures{kNan, kNan, pending_attention_features(queries, keys, causal)};
  }
  return wide ? in_memory<double>(queries, keys, causal) : in_memory<float>(queries, keys, causal);
}

}  // namespace gradmon
