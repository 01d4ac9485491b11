// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <gradmon/monitor.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <stdexcept>

#include "tools/benchmarks/benches.h"
#include "tools/benchmarks/one_thread.h"
#include "tools/benchmarks/range.h"
#include "tools/benchmarks/scratch_job.h"

namespace gradmon {
namespace {

// Nanoseconds of processor time per iteration, of each repetition.
class Capture : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Iteration) nanoseconds.push_back(run.GetAdjustedCPUTime());
    }
  }

  std::vector<double> nanoseconds;
};

bool steps_are_counted(Monitor& monitor) {
  const auto step = [&monitor] {
    const Status status = monitor.status();
    return status.ranks.empty() ? -1 : status.ranks.front().step;
  };
  const std::int64_t before = step();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (step() <= before && std::chrono::steady_clock::now() < deadline) monitor.step();
  return step() > before;
}

std::vector<Figure> measure(Effort effort) {
  const ScratchJob job(R"({"dynamic_on": false})");
  const OneThread pinned;
  torch::nn::Linear model(4, 3);
  Monitor monitor(job.config(), job.options());
  monitor.watch(*model);
  step_until(monitor, "off", "not asked for");
  const bool quick = effort == Effort::quick;
  benchmark::RegisterBenchmark("idle_step",
                               [&monitor](benchmark::State& state) {
                                 for (auto _ : state) monitor.step();
                               })
      ->MinTime(quick ? 0.01 : 0.1)
      ->Repetitions(quick ? 5 : 30);
  Capture capture;
  benchmark::RunSpecifiedBenchmarks(&capture, "idle_step");
  benchmark::ClearRegisteredBenchmarks();
  const Range range = range_of(capture.nanoseconds);
  if (!steps_are_counted(monitor)) throw std::runtime_error("the monitor did not take part");
  Figure figure;
  figure.name = "idle_step_ns";
  figure.value = range.median;
  figure.unit = "ns";
  figure.goal = Goal{Goal::Sense::at_most, 20};
  figure.how = "Monitor::step() in dynamic mode, off, in a loop; minimum, median and maximum of " +
               std::to_string(capture.nanoseconds.size()) + " repetitions: " + text_of(range) +
               " (msprobe: 6,700 to 12,400)";
  return {figure};
}

}  // namespace

Bench idle_step() { return {{"idle_step_ns"}, measure}; }

}  // namespace gradmon
