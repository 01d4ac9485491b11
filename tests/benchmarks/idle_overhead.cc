// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>

#include <optional>

#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/measure/interleave.h"
#include "tests/benchmarks/measure/range.h"
#include "tests/benchmarks/measure/scratch_job.h"
#include "tests/benchmarks/training.h"

namespace gradmon {
namespace {

std::vector<Figure> measure(Effort effort) {
  const bool quick = effort == Effort::quick;
  const int rounds = quick ? 3 : 40;
  const int steps = quick ? 10 : 100;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  Training training({2, 64, 32}, {4, 32}, Training::Optimizer::adamw);
  const ScratchJob job(R"({"dynamic_on": false})");
  std::optional<Monitor> monitor;
  const auto run = [&] {
    for (int i = 0; i < steps; ++i) training.step(monitor ? &*monitor : nullptr);
  };
  // The monitor is created and destroyed between the blocks of steps, outside the timed part.
  const Rounds done =
      interleave(rounds, TimeBase::wall,
                 {{run, [&] { monitor.reset(); }}, {run, [&] {
                                                      if (monitor) return;
                                                      monitor.emplace(job.config(), job.options());
                                                      monitor->watch(training.model(), training.optimizer());
                                                      step_until(*monitor, "off", "never turned on");
                                                    }}});
  at::set_num_threads(threads);
  const std::vector<double> ratios = done.ratios(1, 0);
  const Interval interval = median_interval(ratios);
  Figure figure;
  figure.name = "idle_overhead";
  figure.value = range_of(ratios).median;
  figure.unit = "times the step without gradmon";
  figure.goal = Goal{Goal::Sense::at_most, 1};
  figure.met = interval.low <= 1 && interval.high >= 1;
  figure.how = "blocks of " + std::to_string(steps) + " steps (" +
               text_of(range_of(done.seconds[0]).median * 1000 / steps) +
               " ms) of gradmon-train's small model, with an idle monitor and with none, in turns; goal: not "
               "distinguishable; 95 % of the median: " +
               text_of(interval.low) + " to " + text_of(interval.high) + "; minimum, median and maximum of " +
               std::to_string(rounds) + ": " + text_of(range_of(ratios));
  return {figure};
}

}  // namespace

Bench idle_overhead() { return {{"idle_overhead"}, measure}; }

}  // namespace gradmon
