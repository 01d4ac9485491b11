// SPDX-License-Identifier: Apache-2.0
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>

#include <cmath>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "hooks/stats/adam_histograms.h"
#include "hooks/stats/tensor_stats.h"
#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/measure/interleave.h"
#include "tests/benchmarks/measure/one_thread.h"
#include "tests/benchmarks/measure/plain_read.h"
#include "tests/benchmarks/measure/range.h"

namespace gradmon {
namespace {

constexpr std::int64_t kBytes = std::int64_t{64} << 20;
constexpr double kEps = 1e-8;

at::Tensor numbers(at::ScalarType type) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(type));
  return at::randn({kBytes / size}, at::kFloat).to(type);
}

Task read_of(const at::Tensor& tensor) {
  return {[tensor] { benchmark::DoNotOptimize(plain_read(tensor.data_ptr(), tensor.nbytes())); }, {}};
}

Task stats_of(const at::Tensor& tensor) {
  return {[tensor] {
            auto stats = tensor_stats(tensor, kEps);
            if (!stats) throw std::runtime_error(stats.error());
            benchmark::DoNotOptimize(stats->values[0]);
          },
          {}};
}

Task torch_of(const at::Tensor& tensor) {
  return {[tensor] {
            const c10::NoGradGuard no_grad;
            double sum =
                tensor.norm().item<double>() + tensor.min().item<double>() + tensor.max().item<double>();
            sum += tensor.mean().item<double>() + tensor.isnan().sum().item<double>();
            sum += tensor.abs().lt(kEps).sum().item<double>() / static_cast<double>(tensor.numel());
            benchmark::DoNotOptimize(sum);
          },
          {}};
}

Figure against_read(const std::string& name, at::ScalarType type, int rounds) {
  const at::Tensor tensor = numbers(type);
  const Rounds done = interleave(rounds, TimeBase::thread, {read_of(tensor), stats_of(tensor)});
  const Range share = range_of(done.ratios(0, 1));
  const double read_speed = static_cast<double>(kBytes) / range_of(done.seconds[0]).median / 1e9;
  Figure figure;
  figure.name = name;
  figure.value = share.median;
  figure.unit = "of a plain read's speed";
  figure.how = std::string("six ops on 64 MiB of ") + name_of(dtype_of(tensor)) +
               ", one thread, against a plain read (" + text_of(read_speed) +
               " GB/s) in turns; minimum, median and maximum of " + std::to_string(rounds) + ": " +
               text_of(share);
  return figure;
}

Figure against_torch(int rounds) {
  const at::Tensor tensor = numbers(at::kFloat);
  const Range times =
      range_of(interleave(rounds, TimeBase::thread, {torch_of(tensor), stats_of(tensor)}).ratios(0, 1));
  Figure figure;
  figure.name = "stats_vs_torch";
  figure.value = times.median;
  figure.unit = "times as fast";
  figure.goal = Goal{Goal::Sense::at_least, 15};
  figure.how =
      "six ops on 64 MiB of float32, one thread, against torch's norm, min, max, mean, isnan().sum() and "
      "abs().lt().sum() one after another, in turns; minimum, median and maximum of " +
      std::to_string(rounds) + ": " + text_of(times);
  return figure;
}

// Moments of 64 MiB each, after many steps.
struct Moments {
  at::Tensor first = numbers(at::kFloat) * 0.3;
  at::Tensor second = numbers(at::kFloat).square();
  AdamStep step{0.9, 0.999, kEps, 100};
};

Task read_of(const Moments& moments) {
  return {[moments] {
            benchmark::DoNotOptimize(plain_read(moments.first.data_ptr(), moments.first.nbytes()));
            benchmark::DoNotOptimize(plain_read(moments.second.data_ptr(), moments.second.nbytes()));
          },
          {}};
}

Task histograms_of(const Moments& moments) {
  return {[moments] {
            auto histograms = adam_histograms(moments.first, moments.second, moments.step);
            if (!histograms) throw std::runtime_error(histograms.error());
            benchmark::DoNotOptimize(histograms->bins.update[0]);
          },
          {}};
}

// As msprobe computes them.
Task torch_histograms_of(const Moments& moments) {
  return {[moments] {
            const c10::NoGradGuard no_grad;
            const at::Tensor mean = moments.first / (1 - std::pow(moments.step.beta1, moments.step.steps));
            const at::Tensor square = moments.second / (1 - std::pow(moments.step.beta2, moments.step.steps));
            const at::Tensor update = mean / (square.sqrt() + moments.step.eps);
            const at::Tensor ratio = mean / square.sqrt();
            benchmark::DoNotOptimize(at::histc(update, 30, -1, 1));
            benchmark::DoNotOptimize(at::histc(ratio, 30, -1, 1));
          },
          {}};
}

std::vector<Figure> histograms(int rounds) {
  const Moments moments;
  const auto elements = static_cast<double>(moments.first.numel());
  const Rounds done = interleave(rounds, TimeBase::thread,
                                 {read_of(moments), histograms_of(moments), torch_histograms_of(moments)});
  const double read = range_of(done.seconds[0]).median / elements * 1e9;
  const Range own = range_of(done.seconds[1]);
  const Range times = range_of(done.ratios(2, 1));
  Figure cost;
  cost.name = "histograms_ns";
  cost.value = own.median / elements * 1e9;
  cost.unit = "ns an element";
  cost.how =
      "histograms of update and ratio from float32 moments of 64 MiB each, one thread; a plain read of both "
      "takes " +
      text_of(read) + " ns an element; median of " + std::to_string(rounds);
  Figure against_torch;
  against_torch.name = "histograms_vs_torch";
  against_torch.value = times.median;
  against_torch.unit = "times as fast";
  against_torch.how =
      "the same against torch's ops as msprobe calls them, with two histc, in turns; minimum, median "
      "and maximum of " +
      std::to_string(rounds) + ": " + text_of(times);
  return {cost, against_torch};
}

std::vector<Figure> measure(Effort effort) {
  const OneThread pinned;
  const bool quick = effort == Effort::quick;
  const int rounds = quick ? 5 : 200;
  std::vector<Figure> figures{against_read("stats_vs_read", at::kFloat, rounds),
                              against_read("stats_vs_read_bfloat16", at::kBFloat16, rounds),
                              against_read("stats_vs_read_float16", at::kHalf, rounds),
                              against_read("stats_vs_read_float64", at::kDouble, rounds),
                              against_torch(quick ? 2 : 20)};
  const double goals[] = {0.9, 0.85, 0.85, 0.95};
  for (std::size_t i = 0; i < std::size(goals); ++i) figures[i].goal = Goal{Goal::Sense::at_least, goals[i]};
  for (Figure& figure : histograms(quick ? 2 : 20)) figures.push_back(std::move(figure));
  return figures;
}

}  // namespace

Bench tensor_reads() {
  return {{"stats_vs_read", "stats_vs_read_bfloat16", "stats_vs_read_float16", "stats_vs_read_float64",
           "stats_vs_torch", "histograms_ns", "histograms_vs_torch"},
          measure};
}

}  // namespace gradmon
