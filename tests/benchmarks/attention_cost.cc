// SPDX-License-Identifier: Apache-2.0
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "hooks/stats/attention_features.h"
#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/measure/interleave.h"
#include "tests/benchmarks/measure/range.h"

namespace gradmon {
namespace {

constexpr int kThreads = 2;
constexpr std::int64_t kHeads = 8, kSize = 64;

struct Tensors {
  explicit Tensors(std::int64_t length)
      : q(at::randn({1, kHeads, length, kSize})),
        k(at::randn({1, kHeads, length, kSize})),
        v(at::randn({1, kHeads, length, kSize})),
        hidden(at::ones({length, length}, at::kBool).triu(1)) {}
  at::Tensor q, k, v, hidden;
};

// softmax(Q Kᵀ / √d) V, as a program without a fused kernel computes it.
Task attention_of(const Tensors& tensors, Causal causal) {
  return {[&tensors, causal] {
            const c10::NoGradGuard no_grad;
            at::Tensor scores = at::matmul(tensors.q, tensors.k.transpose(2, 3));
            scores.div_(std::sqrt(static_cast<double>(kSize)));
            if (causal == Causal::yes) {
              scores.masked_fill_(tensors.hidden, -std::numeric_limits<double>::infinity());
            }
            const at::Tensor out = at::matmul(scores.softmax(-1), tensors.v);
            benchmark::DoNotOptimize(out.data_ptr());
          },
          {}};
}

Task features_of(const Tensors& tensors, Causal causal) {
  return {[q = tensors.q.permute({2, 0, 1, 3}), k = tensors.k.permute({2, 0, 1, 3}), causal] {
            auto features = attention_features(q, k, AxisOrder::sbhd, causal);
            if (!features) throw std::runtime_error(features.error());
            benchmark::DoNotOptimize(features->entropy);
          },
          {}};
}

Figure against_attention(const std::string& name, Causal causal, Effort effort) {
  const std::int64_t length = effort == Effort::quick ? 256 : 1024;
  const int rounds = effort == Effort::quick ? 3 : 40;
  const Tensors tensors(length);
  const Rounds done =
      interleave(rounds, TimeBase::wall, {attention_of(tensors, causal), features_of(tensors, causal)});
  const Range share = range_of(done.ratios(1, 0));
  Figure figure;
  figure.name = name;
  figure.value = share.median;
  figure.unit = "of the attention's time";
  figure.goal = Goal{Goal::Sense::at_most, 1};
  figure.how = "entropy and softmax_max of 8 heads of " + std::to_string(length) +
               " queries and keys of 64 float32" + (causal == Causal::yes ? ", causal" : "") +
               ", against softmax(Q Kᵀ / √d) V of the same (" +
               text_of(range_of(done.seconds[0]).median * 1000) +
               " ms), on two threads, in turns; minimum, median and maximum of " + std::to_string(rounds) +
               ": " + text_of(share);
  return figure;
}

std::vector<Figure> measure(Effort effort) {
  const int before = at::get_num_threads();
  at::set_num_threads(kThreads);
  std::vector<Figure> figures{against_attention("attention_features", Causal::no, effort),
                              against_attention("attention_features_causal", Causal::yes, effort)};
  at::set_num_threads(before);
  return figures;
}

}  // namespace

Bench attention_cost() { return {{"attention_features", "attention_features_causal"}, measure}; }

}  // namespace gradmon
