// SPDX-License-Identifier: Apache-2.0
// The statistics of one tensor, against a plain read and against torch; and the features of attention,
// against the attention.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>

#include "hooks/stats/l2_features.h"
#include "hooks/stats/moment_stats.h"
#include "hooks/stats/tensor_stats.h"
#include "tests/benchmarks/collecting_rig.h"

namespace gradmon {
namespace {

constexpr std::int64_t kBytes = std::int64_t{64} << 20;
constexpr double kEps = 1e-8;

// Throws if a reading failed.
template <typename Reading>
void keep_reading(const Reading& reading) {
  if (!reading) throw std::runtime_error(reading.error());
  keep(&*reading);
}

// --- The six statistics of a tensor.

at::Tensor numbers(at::ScalarType type) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(type));
  return at::randn({kBytes / size}, at::kFloat).to(type);
}

Task read_of(const std::vector<at::Tensor>& tensors) {
  return {[tensors] {
    for (const at::Tensor& tensor : tensors) plain_read(tensor.data_ptr(), tensor.nbytes());
  }};
}

Task stats_of(const at::Tensor& tensor) {
  return {[tensor] { keep_reading(tensor_stats(tensor, kEps)); }};
}

Task torch_of(const at::Tensor& tensor) {
  return {[tensor] {
    const c10::NoGradGuard no_grad;
    double sum = tensor.norm().item<double>() + tensor.min().item<double>() + tensor.max().item<double>();
    sum += tensor.mean().item<double>() + tensor.isnan().sum().item<double>();
    sum += tensor.abs().lt(kEps).sum().item<double>() / static_cast<double>(tensor.numel());
    keep(sum);
  }};
}

Figure stats_vs_read(const std::string& name, at::ScalarType type, double goal, int rounds) {
  const at::Tensor tensor = numbers(type);
  const Rounds done = interleave(rounds, TimeBase::thread, {read_of({tensor}), stats_of(tensor)});
  const double read_speed = static_cast<double>(kBytes) / median_of(done.seconds[0]) / 1e9;
  return median_figure(name, done.ratios(0, 1), "of a plain read's speed", at_least(goal),
                       std::string("six ops on 64 MiB of ") + name_of(dtype_of(tensor)) +
                           ", one thread, against a plain read (" + text_of(read_speed) + " GB/s) in turns");
}

Figure stats_vs_torch(int rounds) {
  const at::Tensor tensor = numbers(at::kFloat);
  const Rounds done = interleave(rounds, TimeBase::thread, {torch_of(tensor), stats_of(tensor)});
  return median_figure("stats_vs_torch", done.ratios(0, 1), "times as fast", at_least(15),
                       "six ops on 64 MiB of float32, one thread, against torch's norm, min, max, mean, "
                       "isnan().sum() and abs().lt().sum() one after another, in turns");
}

// --- Histograms from moments of 64 MiB each, after many steps.

std::vector<Figure> histograms(int rounds) {
  const at::Tensor first = numbers(at::kFloat) * 0.3;
  const at::Tensor second = numbers(at::kFloat).square();
  const AdamStep step{0.9, 0.999, kEps, 100};
  const Task ours{[&] { keep_reading(adam_histograms(first, second, step)); }};
  const Task as_msprobe{[&] {
    const c10::NoGradGuard no_grad;
    const at::Tensor mean = first / (1 - std::pow(step.beta1, step.steps));
    const at::Tensor square = second / (1 - std::pow(step.beta2, step.steps));
    const at::Tensor update = mean / (square.sqrt() + step.eps);
    const at::Tensor ratio = mean / square.sqrt();
    keep(at::histc(update, 30, -1, 1).data_ptr());
    keep(at::histc(ratio, 30, -1, 1).data_ptr());
  }};
  const Rounds done = interleave(rounds, TimeBase::thread, {read_of({first, second}), ours, as_msprobe});
  const double of_element = 1e9 / static_cast<double>(first.numel());
  return {
      median_figure("histograms_ns", scaled(done.seconds[1], of_element), "ns an element", {},
                    "histograms of update and ratio from float32 moments of 64 MiB each, one thread; a plain "
                    "read of both takes " +
                        text_of(median_of(done.seconds[0]) * of_element) + " ns an element"),
      median_figure("histograms_vs_torch", done.ratios(2, 1), "times as fast", {},
                    "the same against torch's ops as msprobe calls them, with two histc, in turns")};
}

std::vector<Figure> tensor_reads(Effort effort) {
  const TorchThreads pinned(1, Processors::one);
  const int rounds = pick(effort, 5, 200);
  const int few = pick(effort, 2, 20);
  std::vector<Figure> figures{stats_vs_read("stats_vs_read", at::kFloat, 0.9, rounds),
                              stats_vs_read("stats_vs_read_bfloat16", at::kBFloat16, 0.85, rounds),
                              stats_vs_read("stats_vs_read_float16", at::kHalf, 0.85, rounds),
                              stats_vs_read("stats_vs_read_float64", at::kDouble, 0.95, rounds),
                              stats_vs_torch(few)};
  for (Figure& figure : histograms(few)) figures.push_back(std::move(figure));
  return figures;
}

// --- Attention.

Figure features_vs_attention(const std::string& name, Causal causal, Effort effort) {
  constexpr std::int64_t kHeads = 8, kSize = 64;
  const std::int64_t length = pick(effort, 256, 1024);
  const auto draw = [&] { return at::randn({1, kHeads, length, kSize}); };
  const at::Tensor q = draw(), k = draw(), v = draw();
  const at::Tensor hidden = at::ones({length, length}, at::kBool).triu(1);
  // softmax(Q Kᵀ / √d) V, as a program without a fused kernel computes it.
  const Task attention{[&] {
    const c10::NoGradGuard no_grad;
    at::Tensor scores = at::matmul(q, k.transpose(2, 3));
    scores.div_(std::sqrt(static_cast<double>(kSize)));
    if (causal == Causal::yes) scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
    keep(at::matmul(scores.softmax(-1), v).data_ptr());
  }};
  const Task features{[&, sq = q.permute({2, 0, 1, 3}), sk = k.permute({2, 0, 1, 3})] {
    keep_reading(attention_features(sq, sk, AxisOrder::sbhd, causal));
  }};
  const Rounds done = interleave(pick(effort, 3, 40), TimeBase::wall, {attention, features});
  return median_figure(name, done.ratios(1, 0), "of the attention's time", at_most(1),
                       "entropy and softmax_max of 8 heads of " + std::to_string(length) +
                           " queries and keys of 64 float32" + (causal == Causal::yes ? ", causal" : "") +
                           ", against softmax(Q Kᵀ / √d) V of the same (" +
                           text_of(median_of(done.seconds[0]) * 1000) + " ms), on two threads, in turns");
}

std::vector<Figure> attention(Effort effort) {
  const TorchThreads two(2);
  return {features_vs_attention("attention_features", Causal::no, effort),
          features_vs_attention("attention_features_causal", Causal::yes, effort)};
}

}  // namespace

std::vector<Bench> reading_cost() {
  return {{{"stats_vs_read", "stats_vs_read_bfloat16", "stats_vs_read_float16", "stats_vs_read_float64",
            "stats_vs_torch", "histograms_ns", "histograms_vs_torch"},
           tensor_reads},
          {{"attention_features", "attention_features_causal"}, attention}};
}

}  // namespace gradmon
