// SPDX-License-Identifier: Apache-2.0
// gradmon-bench-steps PARAMETERS COUNT: COUNT steps of a training whose monitor is off, those of the switch,
// and COUNT collected steps: both kinds of gradients, parameters of four elements. Prints them as JSON for
// baseline_bench.py. Needs public headers alone: tools/bench --baseline compiles it for an older commit, too.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <gradmon/monitor.h>
#include <time.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct RestingOptimizer : torch::optim::SGD {
  explicit RestingOptimizer(const torch::nn::Module& model)
      : SGD(model.parameters(), torch::optim::SGDOptions(0)) {}
  at::Tensor step(LossClosure) override { return {}; }
};

double seconds_now(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

double resident_mb() {
  double size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

std::string measure(const fs::path& config, int parameters, std::int64_t count) {
  torch::nn::Module model;
  for (int i = 0; i < parameters; ++i) model.register_parameter("p" + std::to_string(i), at::full({4}, 1.0));
  RestingOptimizer optimizer(model);
  MonitorOptions options;
  options.rank = 0;
  options.world_size = 1;
  options.output_dir = config.parent_path() / "monitor_output";
  options.dynamic = true;
  Monitor monitor(config, options);
  monitor.watch(model, optimizer);
  std::int64_t steps = 0;
  std::ostringstream lines;
  const auto step_until = [&](const std::function<bool()>& reached) {
    const auto deadline = Clock::now() + std::chrono::seconds(120);
    while (!reached()) {
      if (Clock::now() > deadline) throw std::runtime_error("the monitor is " + monitor.status().state);
      const double begin = seconds_now(CLOCK_MONOTONIC), begin_cpu = seconds_now(CLOCK_THREAD_CPUTIME_ID);
      optimizer.zero_grad();
      at::cat(model.parameters()).sum().backward();
      monitor.step(optimizer);
      const double end_cpu = seconds_now(CLOCK_THREAD_CPUTIME_ID);
      lines << (steps++ == 0 ? "[" : ",\n[") << seconds_now(CLOCK_MONOTONIC) - begin << ", "
            << end_cpu - begin_cpu << ", " << resident_mb() << "]";
    }
  };
  step_until([&] { return monitor.status().reason == "never turned on"; });
  const std::int64_t begin = steps + 5;
  step_until([&] { return steps == begin + count; });
  monitor.on();
  step_until([&] { return monitor.status().state == "on"; });
  const std::int64_t on = monitor.status().effective_step;
  step_until([&] { return steps >= on + count; });
  monitor.stop();
  if (monitor.status().ranks.at(0).dropped > 0) throw std::runtime_error("rows were dropped");
  return "{\"begin\": " + std::to_string(begin) + ", \"asked\": " + std::to_string(begin + count) +
         ", \"on\": " + std::to_string(on) + ", \"steps\": [" + lines.str() + "]}";
}

}  // namespace
}  // namespace gradmon

int main(int, char** argv) {
  std::cout << gradmon::measure(argv[1], std::atoi(argv[2]), std::atoi(argv[3])) << std::endl;
}
