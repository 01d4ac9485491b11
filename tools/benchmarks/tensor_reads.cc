// SPDX-License-Identifier: Apache-2.0
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>

#include <stdexcept>

#include "hooks/stats/tensor_stats.h"
#include "tools/benchmarks/benches.h"
#include "tools/benchmarks/measure/interleave.h"
#include "tools/benchmarks/measure/one_thread.h"
#include "tools/benchmarks/measure/plain_read.h"
#include "tools/benchmarks/measure/range.h"

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

std::vector<Figure> measure(Effort effort) {
  const OneThread pinned;
  const bool quick = effort == Effort::quick;
  const int rounds = quick ? 5 : 200;
  std::vector<Figure> figures{against_read("stats_vs_read", at::kFloat, rounds),
                              against_read("stats_vs_read_bfloat16", at::kBFloat16, rounds),
                              against_read("stats_vs_read_float16", at::kHalf, rounds),
                              against_torch(quick ? 2 : 20)};
  figures[0].goal = Goal{Goal::Sense::at_least, 0.9};
  return figures;
}

}  // namespace

Bench tensor_reads() {
  return {{"stats_vs_read", "stats_vs_read_bfloat16", "stats_vs_read_float16", "stats_vs_torch"}, measure};
}

}  // namespace gradmon
