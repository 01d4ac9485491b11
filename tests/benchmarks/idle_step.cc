// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <gradmon/monitor.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <stdexcept>

#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/measure/one_thread.h"
#include "tests/benchmarks/measure/range.h"
#include "tests/benchmarks/measure/scratch_job.h"

namespace gradmon {
namespace {

// Collects the nanoseconds of processor time per iteration, for each repetition.
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

// The nanoseconds per step of each repetition.
std::vector<double> time_steps(Monitor& monitor, Effort effort) {
  const bool quick = effort == Effort::quick;
  benchmark::RegisterBenchmark("step",
                               [&monitor](benchmark::State& state) {
                                 for (auto _ : state) monitor.step();
                               })
      ->MinTime(quick ? 0.01 : 0.1)
      ->Repetitions(quick ? 5 : 30);
  Capture capture;
  benchmark::RunSpecifiedBenchmarks(&capture, "step");
  benchmark::ClearRegisteredBenchmarks();
  if (!steps_are_counted(monitor)) throw std::runtime_error("the monitor did not take part");
  return capture.nanoseconds;
}

std::vector<double> time_job(const std::string& config, const std::string& state, const std::string& reason,
                             Effort effort) {
  const ScratchJob job(config);
  torch::nn::Linear model(4, 3);
  Monitor monitor(job.config(), job.options());
  monitor.watch(*model);
  step_until(monitor, state, reason);
  return time_steps(monitor, effort);
}

std::vector<Figure> measure(Effort effort) {
  const OneThread pinned;
  const std::vector<double> off = time_job(R"({"dynamic_on": false})", "off", "never turned on", effort);
  const std::vector<double> on = time_job(
      R"({"dynamic_on": true, "collect_times": 1000000, "step_interval": 1000000000, "wg_distribution": true})",
      "on", "", effort);
  const Range idle_range = range_of(off);
  const Range on_range = range_of(on);
  Figure idle;
  idle.name = "idle_step_ns";
  idle.value = idle_range.median;
  idle.unit = "ns";
  idle.goal = Goal{Goal::Sense::at_most, 5};
  idle.how = "Monitor::step() in dynamic mode, off, in a loop; minimum, median and maximum of " +
             std::to_string(off.size()) + " repetitions: " + text_of(idle_range) +
             " (msprobe: 6,700 to 12,400)";
  Figure extra;
  extra.name = "on_step_extra_ns";
  extra.value = on_range.median - idle_range.median;
  extra.unit = "ns";
  extra.goal = Goal{Goal::Sense::at_most, 30};
  extra.how =
      "what monitoring adds to that while it is on, in a step that is not collected; the whole step: " +
      text_of(on_range);
  return {idle, extra};
}

}  // namespace

Bench idle_step() { return {{"idle_step_ns", "on_step_extra_ns"}, measure}; }

}  // namespace gradmon
