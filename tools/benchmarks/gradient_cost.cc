// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "tools/benchmarks/benches.h"
#include "tools/benchmarks/plain_read.h"
#include "tools/benchmarks/range.h"
#include "tools/benchmarks/scratch_job.h"
#include "tools/benchmarks/training.h"

namespace gradmon {
namespace {

constexpr int kThreads = 2;
constexpr const char* kOps = R"("ops": ["norm", "min", "max", "mean", "nans", "zeros"])";

double seconds_of(const std::function<void()>& task) {
  const auto begin = std::chrono::steady_clock::now();
  task();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A training whose gradients are collected in one step of `interval`.
class WatchedTraining {
 public:
  WatchedTraining(CharTransformer::Shape shape, TextBatches::Shape batch, Training::Optimizer optimizer,
                  int interval)
      : job_(R"({"dynamic_on": true, "wg_distribution": true, "collect_times": 1000000, "step_interval": )" +
             std::to_string(interval) + ", " + kOps + "}"),
        interval_(interval),
        training_(shape, batch, optimizer),
        monitor_(job_.config(), job_.options()) {
    monitor_.watch(training_.model(), training_.optimizer());
    next_ = step_until(monitor_, "on", "");
    effective_ = monitor_.status().effective_step;
    for (int i = 0; i < interval; ++i) time_step();
  }

  // Seconds of the next step, which is collected or not.
  double time_step() {
    next_ += 1;
    return seconds_of([this] { training_.step(&monitor_); });
  }
  bool next_is_collected() const { return next_ >= effective_ && (next_ - effective_) % interval_ == 0; }
  std::vector<at::Tensor> gradients() {
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : training_.model().parameters()) all.push_back(parameter.grad());
    return all;
  }
  // Throws where the monitor has not done what is being measured.
  void check(std::size_t collections) {
    const std::size_t rows = 2 * training_.model().parameters().size() * collections;
    monitor_.stop();
    const Status status = monitor_.status();
    if (status.ranks.empty() || status.ranks.front().dropped > 0)
      throw std::runtime_error("rows were dropped");
    if (records_on_disk(job_.output()) < rows) throw std::runtime_error("too little was collected");
  }

 private:
  const ScratchJob job_;
  const std::int64_t interval_;
  Training training_;
  Monitor monitor_;
  std::int64_t next_ = 0;
  std::int64_t effective_ = 0;
};

// Reads all tensors once, on torch's threads.
void read_all(const std::vector<at::Tensor>& tensors) {
  constexpr std::int64_t chunk = std::int64_t{1} << 20;
  std::vector<std::pair<const char*, std::int64_t>> chunks;
  for (const at::Tensor& tensor : tensors) {
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    for (std::int64_t at = 0; at < bytes; at += chunk) {
      chunks.emplace_back(static_cast<const char*>(tensor.data_ptr()) + at, std::min(chunk, bytes - at));
    }
  }
  at::parallel_for(0, static_cast<std::int64_t>(chunks.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      benchmark::DoNotOptimize(plain_read(chunks[i].first, static_cast<std::size_t>(chunks[i].second)));
    }
  });
}

CharTransformer::Shape shape_for(Effort effort) {
  return effort == Effort::quick ? CharTransformer::Shape{1, 64, 128} : CharTransformer::Shape{6, 512, 128};
}

// Rounds of: read twice, a step as it is, a step as it is, a step that is
// collected; so what precedes the last two is alike.
Figure against_read(Effort effort) {
  const int rounds = effort == Effort::quick ? 2 : 60;
  WatchedTraining training(shape_for(effort), {1, 8}, Training::Optimizer::sgd, 3);
  while (!training.next_is_collected()) training.time_step();
  training.time_step();
  const std::vector<at::Tensor> gradients = training.gradients();
  std::vector<double> shares;
  std::vector<double> reads;
  for (int i = 0; i < rounds; ++i) {
    reads.push_back(seconds_of([&] {
      read_all(gradients);
      read_all(gradients);
    }));
    training.time_step();
    const double idle = training.time_step();
    shares.push_back((training.time_step() - idle) / reads.back());
  }
  training.check(static_cast<std::size_t>(rounds));
  const Range range = range_of(shares);
  Figure figure;
  figure.name = "grads_vs_read";
  figure.value = range.median;
  figure.unit = "times the read";
  figure.goal = Goal{Goal::Sense::at_most, 1.5};
  figure.how =
      "what collecting all gradients before and after reduction, six ops, adds to a step of a model of "
      "20 million parameters, over a plain read of those bytes (" +
      text_of(range_of(reads).median * 1000) +
      " ms) on two threads, in turns; minimum, median and maximum of " + std::to_string(rounds) + ": " +
      text_of(range);
  return figure;
}

// Steps in turns as they are and collected; each of these against the mean of its two neighbours.
Figure overhead(Effort effort, std::int64_t tokens, double goal, int rounds) {
  const auto shape = shape_for(effort);
  if (effort == Effort::quick) rounds = 2;
  WatchedTraining training(shape, {tokens / shape.context, shape.context}, Training::Optimizer::adamw, 2);
  while (training.next_is_collected()) training.time_step();
  std::vector<double> shares;
  std::vector<double> steps{training.time_step()};
  for (int i = 0; i < rounds; ++i) {
    const double collected = training.time_step();
    steps.push_back(training.time_step());
    const double idle = (steps[steps.size() - 2] + steps.back()) / 2;
    shares.push_back((collected - idle) / idle);
  }
  training.check(static_cast<std::size_t>(rounds));
  const Range range = range_of(shares);
  Figure figure;
  figure.name = "grads_overhead_" + std::to_string(tokens);
  figure.value = range.median;
  figure.unit = "of a step";
  figure.goal = Goal{Goal::Sense::at_most, goal};
  figure.how =
      "the same as a share of the step of gradmon-train --layers 6 --width 512 --context 128 --batch " +
      std::to_string(tokens / shape.context) + " (" + text_of(range_of(steps).median * 1000) +
      " ms) on two threads, in turns; minimum, median and maximum of " + std::to_string(rounds) + ": " +
      text_of(range);
  return figure;
}

std::vector<Figure> measure(Effort effort) {
  const int before = at::get_num_threads();
  at::set_num_threads(kThreads);
  std::vector<Figure> figures{against_read(effort), overhead(effort, 2048, 0.01, 10),
                              overhead(effort, 512, 0.03, 25)};
  figures.back().how += " (msprobe adds 0.46)";
  at::set_num_threads(before);
  if (effort == Effort::quick) {
    for (Figure& figure : figures) figure.how += "; quick: of a model far smaller than that";
  }
  return figures;
}

}  // namespace

Bench gradient_cost() { return {{"grads_vs_read", "grads_overhead_2048", "grads_overhead_512"}, measure}; }

}  // namespace gradmon
