// SPDX-License-Identifier: Apache-2.0
// gradmon-train: real training, small enough to watch.
#include <torch/types.h>  // Keep first: clip_grad.h needs it and does not say so.

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <gradmon/monitor.h>

#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <thread>

#include "tests/training/char_transformer.h"
#include "tests/training/gradient_accumulation.h"
#include "tests/training/gradient_average.h"
#include "tests/training/text_batches.h"
#include "tests/training/train_options.h"
#include "tests/training/trainable_parameters.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kStepsPerLine = 50;
constexpr double kLearningRate = 3e-3;
constexpr double kSpike = 1000.0;

// Random delays of steps. The generator is separate, so that a delay changes no parameter.
class Skew {
 public:
  explicit Skew(const TrainOptions& options) : greatest_(options.skew.count() * 1000) {
    std::seed_seq seeds{options.seed, static_cast<std::uint64_t>(options.rank), std::uint64_t{0x5e3}};
    random_.seed(seeds);
  }

  void wait() {
    if (greatest_ == 0) return;
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution<std::int64_t>(0, greatest_)(random_)));
  }

 private:
  const std::int64_t greatest_;  // microseconds
  std::mt19937_64 random_;
};

std::string for_rank(std::string path, int rank) {
  if (const auto place = path.find("{rank}"); place != std::string::npos) {
    path.replace(place, 6, std::to_string(rank));
  }
  return path;
}

void save(const CharTransformer& model, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  for (const auto& parameter : distinct_parameters(model)) {
    const auto values = parameter.value().detach().contiguous();
    file.write(static_cast<const char*>(values.data_ptr()), static_cast<std::streamsize>(values.nbytes()));
  }
  if (!file.flush()) throw std::runtime_error("cannot write the parameters to " + path);
}

// Writes a line per step: the step, and the steady-clock microseconds before and after the
// optimizer's step. Each line is flushed, so that it survives a kill of the process.
class StepLog {
 public:
  explicit StepLog(const TrainOptions& options) {
    if (!options.step_log.empty()) file_.open(for_rank(options.step_log, options.rank));
  }

  void add(std::int64_t step, Clock::time_point called, Clock::time_point back) {
    if (file_.is_open())
      file_ << step << ' ' << microseconds(called) << ' ' << microseconds(back) << std::endl;
  }

 private:
  static std::int64_t microseconds(Clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
  }

  std::ofstream file_;
};

// Makes a gradient too large or NaN, as a bad batch or a flipped bit does.
void spoil_gradient(CharTransformer& model, const std::string& parameter, double factor) {
  model.named_parameters()[parameter].mutable_grad().mul_(factor);
}

// The earliest end of a step that begins now.
Clock::time_point end_of_step(const TrainOptions& options, std::int64_t step) {
  if (options.pace_since.count() == 0) return Clock::now() + options.step_time;
  return Clock::time_point(options.pace_since) + (step + 1) * options.step_time;
}

MonitorOptions monitor_options(const TrainOptions& options) {
  MonitorOptions result;
  result.rank = options.rank;
  result.world_size = options.world_size;
  result.start_iteration = options.start_iteration;
  result.grad_acc_steps = static_cast<int>(options.micro_batches);
  return result;
}

// Reports the numbers of a step that only the program knows.
void report_step_scalars(Monitor& monitor, const TrainOptions& options, const MicroBatchResult& done) {
  monitor.scalar("loss", done.loss.item<double>());
  monitor.scalar("learning-rate", kLearningRate);
  monitor.samples(options.batch * options.micro_batches * options.world_size);
  for (const ExpertLoad& load : done.expert_load) {
    const at::Tensor tokens = load.tokens.contiguous();
    const auto* counts = tokens.data_ptr<std::int64_t>();
    monitor.expert_load(load.layer, {counts, counts + tokens.numel()});
  }
}

void train(const TrainOptions& options) {
  at::set_num_threads(options.threads);
  at::globalContext().setDeterministicAlgorithms(true, false);
  torch::manual_seed(options.seed);
  CharTransformer model(options.shape);
  freeze(model, options.frozen);
  const auto parameters = trainable_parameters(model);
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(kLearningRate));
  TextBatches batches(options.text, {options.batch, options.shape.context}, options.seed, options.rank);
  Skew skew(options);
  StepLog step_log(options);
  std::optional<GradientAverage> gradients;
  if (options.world_size > 1 && options.coupling == Coupling::coupled) {
    gradients.emplace(
        Rendezvous{options.rank, options.world_size, options.master_address, options.master_port}, parameters,
        options.shape.experts == 0 ? Participation::every_parameter : Participation::some_parameters);
  }
  std::optional<Monitor> monitor;
  if (options.monitoring == Monitoring::on) {
    monitor.emplace(options.config, monitor_options(options));
    monitor->watch(model, optimizer);
  }
  const auto last = options.start_iteration + options.steps - 1;
  for (auto step = options.start_iteration; step <= last; ++step) {
    const auto end = end_of_step(options, step);
    skew.wait();
    unset_gradients(parameters);
    const auto done = accumulate_gradients(model, batches.next(options.micro_batches));
    if (options.rank == 0 && step == options.spike_step)
      spoil_gradient(model, options.spike_parameter, kSpike);
    if (options.rank == 0 && step == options.nan_step)
      spoil_gradient(model, options.spike_parameter, std::numeric_limits<double>::quiet_NaN());
    if (gradients) gradients->average();
    if (options.max_norm > 0) torch::nn::utils::clip_grad_norm_(parameters, options.max_norm);
    if (monitor) report_step_scalars(*monitor, options, done);
    const auto called = Clock::now();
    Loop loop = Loop::goes_on;
    if (monitor) {
      loop = monitor->step(optimizer);
    } else {
      optimizer.step();
    }
    step_log.add(step, called, Clock::now());
    if (options.rank == 0 && (step % kStepsPerLine == 0 || step == last || loop == Loop::may_end)) {
      std::cout << "step " << step << " loss " << done.loss.item<float>() << std::endl;
    }
    if (loop == Loop::may_end) break;
    std::this_thread::sleep_until(end);
  }
  if (!options.save.empty()) save(model, for_rank(options.save, options.rank));
}

}  // namespace
}  // namespace gradmon

int main(int argc, char** argv) {
  const auto options = gradmon::parse_train_options(argc, argv);
  try {
    gradmon::train(options);
  } catch (const std::exception& error) {
    const std::string what = error.what();  // torch appends a backtrace
    std::cerr << "gradmon-train: rank " << options.rank << ": " << what.substr(0, what.find('\n'))
              << std::endl;
    return 1;
  }
  return 0;
}
