// SPDX-License-Identifier: Apache-2.0
// gradmon-train: real training, small enough to watch. The example of a C++ program with gradmon: a Monitor,
// one call of step() in place of the optimizer's, and the scalars that only the program knows.
#include <torch/types.h>  // Keep first: clip_grad.h needs it and does not say so.

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <gradmon/monitor.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <random>
#include <thread>

#include "tests/support/gradient_average.h"
#include "tests/support/training_step.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::int64_t kStepsPerLine = 50;
constexpr double kLearningRate = 3e-3;
constexpr double kSpike = 1000.0;

struct Options {
  std::string text = default_text();
  std::int64_t steps = 200, start_iteration = 0;
  std::int64_t step_ms = 0, skew_ms = 0, pace_since = 0;
  bool uncoupled = false;
  TransformerShape shape{2, 64, 32};
  std::int64_t batch = 4, micro_batches = 1;
  std::vector<std::string> frozen;
  double max_norm = 1.0;
  std::optional<std::int64_t> spike_step, nan_step;
  std::string spike_parameter = "head.weight";
  int threads = 1;
  std::uint64_t seed = 1;
  std::string config, save, step_log;
  bool monitored = false;

  // From the launcher's environment; the defaults are a single rank.
  Rendezvous place{0, 1, "127.0.0.1", 29500};
};

constexpr std::int64_t kMaxNumber = 1'000'000'000'000;
const CLI::Range kPositive(std::int64_t{1}, kMaxNumber);
const CLI::Range kNotNegative(std::int64_t{0}, kMaxNumber);

void add_training(CLI::App& app, Options& options) {
  app.add_option("--text", options.text, "The text to learn")->check(CLI::ExistingFile);
  app.add_option("--steps", options.steps, "How many steps to run")->check(kPositive);
  app.add_option("--start-iteration", options.start_iteration, "Number of the first step")
      ->check(kNotNegative);
  app.add_option("--seed", options.seed, "Seed of the parameters, batches and delays");
  app.add_option("--batch", options.batch, "Texts in a batch")->check(kPositive);
  app.add_option("--micro-batches", options.micro_batches,
                 "Batches in a step; their gradients are accumulated. Four of them with a quarter of --batch "
                 "train the same, up to rounding")
      ->check(kPositive);
  app.add_option("--freeze", options.frozen,
                 "Do not train parameters whose name contains this; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--max-norm", options.max_norm, "Clip the gradients to this norm; 0: do not clip")
      ->check(CLI::NonNegativeNumber);
  app.add_option(
         "--spike-step", options.spike_step,
         "A fault to find: in this step the gradient of --spike-parameter becomes 1000 times too large "
         "on rank 0, before it is reduced")
      ->check(kNotNegative);
  app.add_option("--nan-step", options.nan_step, "Likewise, but it becomes NaN")->check(kNotNegative);
  app.add_option("--spike-parameter", options.spike_parameter, "See --spike-step");
  app.add_option("--threads", options.threads, "Threads of torch's operators")->check(kPositive);
  app.add_option("--save", options.save,
                 "Write the bytes of the final parameters to this file, in the model's order; {rank} stands "
                 "for the rank");
  app.add_option("--step-log", options.step_log,
                 "Write a line to this file for each step: its number, and the times before and after the "
                 "call of gradmon, in microseconds of the monotonic clock; {rank} stands for the rank");
}

void add_model(CLI::App& app, TransformerShape& shape) {
  app.add_option("--layers", shape.layers, "Transformer blocks")->check(kPositive);
  app.add_option("--width", shape.width, "A multiple of 4")->check(kPositive);
  app.add_option("--context", shape.context, "Bytes in a text")->check(kPositive);
  app.add_option("--experts", shape.experts, "Experts of the mixture in each block; 0: a perceptron instead")
      ->check(kNotNegative);
  app.add_flag_callback(
      "--in-place", [&] { shape.activation = Activation::relu_in_place; },
      "Rectify in place, instead of a GELU");
  app.add_flag_callback(
      "--checkpoint", [&] { shape.block_values = BlockValues::recomputed; },
      "Keep no activations within a block; compute them again in the backward");
  app.add_flag_callback(
      "--tied", [&] { shape.head_weight = HeadWeight::token_embedding; },
      "head.weight is token_embedding.weight");
}

void add_job(CLI::App& app, Options& options) {
  app.add_option("--step-ms", options.step_ms, "Minimum duration of a step")->check(kNotNegative);
  app.add_option("--skew-ms", options.skew_ms, "A random delay up to this, in each step of each rank")
      ->check(kNotNegative);
  app.add_option("--pace-since", options.pace_since,
                 "A time of the monotonic clock in microseconds: step n begins n times --step-ms after it at "
                 "the earliest, and a rank that is late catches up")
      ->check(kNotNegative);
  app.add_flag("--uncoupled", options.uncoupled, "No collective between the ranks: they drift apart");
  app.add_option("--rank", options.place.rank)->envname("RANK")->check(kNotNegative);
  app.add_option("--world-size", options.place.world_size)->envname("WORLD_SIZE")->check(kPositive);
  app.add_option("--master-address", options.place.master_address)->envname("MASTER_ADDR");
  app.add_option("--master-port", options.place.master_port)->envname("MASTER_PORT");
}

// With --help prints help and exits with 0. Prints a usage error and exits with 2.
Options parse(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small transformer on the bytes of a text, watched by gradmon.", "gradmon-train");
  app.option_defaults()->always_capture_default();
  std::string monitor;
  add_training(app, options);
  add_model(app, options.shape);
  add_job(app, options);
  app.add_option("--config", options.config, "gradmon's configuration file");
  app.add_option("--monitor", monitor, "off: run without gradmon (default: on if --config is given)")
      ->check(CLI::IsMember({"off", "on"}));
  try {
    app.parse(argc, argv);
    if (monitor == "on" && options.config.empty()) throw CLI::RequiresError("--monitor on", "--config");
    options.monitored = !options.config.empty() && monitor != "off";
    if (options.shape.width % CharTransformer::kHeads != 0)
      throw CLI::ValidationError("--width", "must be a multiple of 4");
    if (options.place.rank >= options.place.world_size)
      throw CLI::ValidationError("RANK", "must be less than WORLD_SIZE");
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  return options;
}

// Random delays of steps. The generator is separate, so that a delay changes no parameter.
class Skew {
 public:
  explicit Skew(const Options& options) : delay_(0, options.skew_ms * 1000) {
    std::seed_seq seeds{options.seed, static_cast<std::uint64_t>(options.place.rank), std::uint64_t{0x5e3}};
    random_.seed(seeds);
  }

  void wait() {
    if (delay_.max() > 0) std::this_thread::sleep_for(microseconds(delay_(random_)));
  }

 private:
  std::uniform_int_distribution<std::int64_t> delay_;  // microseconds
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

std::int64_t now_in_microseconds() {
  return std::chrono::duration_cast<microseconds>(Clock::now().time_since_epoch()).count();
}

// Makes a gradient too large or NaN in the wanted steps, as a bad batch or a flipped bit does.
void spoil_gradient(CharTransformer& model, const Options& options, std::int64_t step) {
  if (options.place.rank != 0) return;
  const auto times = [&](double factor) {
    model.named_parameters()[options.spike_parameter].mutable_grad().mul_(factor);
  };
  if (step == options.spike_step) times(kSpike);
  if (step == options.nan_step) times(std::numeric_limits<double>::quiet_NaN());
}

// The earliest end of a step that begins now.
Clock::time_point end_of_step(const Options& options, std::int64_t step) {
  if (options.pace_since == 0) return Clock::now() + milliseconds(options.step_ms);
  return Clock::time_point(microseconds(options.pace_since)) + (step + 1) * milliseconds(options.step_ms);
}

MonitorOptions monitor_options(const Options& options) {
  MonitorOptions result;
  result.rank = options.place.rank;
  result.world_size = options.place.world_size;
  result.start_iteration = options.start_iteration;
  result.grad_acc_steps = static_cast<int>(options.micro_batches);
  return result;
}

// Reports the numbers of a step that only the program knows.
void report_step_scalars(Monitor& monitor, const Options& options, const MicroBatchResult& done) {
  monitor.scalar("loss", done.loss.item<double>());
  monitor.scalar("learning-rate", kLearningRate);
  monitor.samples(options.batch * options.micro_batches * options.place.world_size);
  for (const ExpertLoad& load : done.expert_load) {
    const at::Tensor tokens = load.tokens.contiguous();
    const auto* counts = tokens.data_ptr<std::int64_t>();
    monitor.expert_load(load.layer, {counts, counts + tokens.numel()});
  }
}

void train(const Options& options) {
  at::set_num_threads(options.threads);
  at::globalContext().setDeterministicAlgorithms(true, false);
  torch::manual_seed(options.seed);
  CharTransformer model(options.shape);
  freeze(model, options.frozen);
  const auto parameters = trainable_parameters(model);
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(kLearningRate));
  const int rank = options.place.rank;
  TextBatches batches(options.text, {options.batch, options.shape.context}, options.seed, rank);
  Skew skew(options);
  std::ofstream step_log;
  if (!options.step_log.empty()) step_log.open(for_rank(options.step_log, rank));
  std::optional<GradientAverage> gradients;
  if (options.place.world_size > 1 && !options.uncoupled) {
    gradients.emplace(
        options.place, parameters,
        options.shape.experts == 0 ? Participation::every_parameter : Participation::some_parameters);
  }
  std::optional<Monitor> monitor;
  if (options.monitored) {
    monitor.emplace(options.config, monitor_options(options));
    monitor->watch(model, optimizer);
  }
  const auto last = options.start_iteration + options.steps - 1;
  for (auto step = options.start_iteration; step <= last; ++step) {
    const auto end = end_of_step(options, step);
    skew.wait();
    unset_gradients(parameters);
    std::vector<TextBatch> micro_batches;
    for (std::int64_t i = 0; i < options.micro_batches; ++i) micro_batches.push_back(batches.next());
    const auto done = accumulate_gradients(model, micro_batches);
    spoil_gradient(model, options, step);
    if (gradients) gradients->average();
    if (options.max_norm > 0) torch::nn::utils::clip_grad_norm_(parameters, options.max_norm);
    if (monitor) report_step_scalars(*monitor, options, done);
    const std::int64_t called = now_in_microseconds();
    Loop loop = Loop::goes_on;
    if (monitor) {
      loop = monitor->step(optimizer);
    } else {
      optimizer.step();
    }
    // Each line is flushed, so that it survives a kill of the process.
    if (step_log.is_open()) step_log << step << ' ' << called << ' ' << now_in_microseconds() << std::endl;
    if (rank == 0 && (step % kStepsPerLine == 0 || step == last || loop == Loop::may_end))
      std::cout << "step " << step << " loss " << done.loss.item<float>() << std::endl;
    if (loop == Loop::may_end) break;
    std::this_thread::sleep_until(end);
  }
  if (!options.save.empty()) save(model, for_rank(options.save, rank));
}

}  // namespace
}  // namespace gradmon

int main(int argc, char** argv) {
  const auto options = gradmon::parse(argc, argv);
  try {
    gradmon::train(options);
  } catch (const std::exception& error) {
    const std::string what = error.what();  // torch appends a backtrace
    std::cerr << "gradmon-train: rank " << options.place.rank << ": " << what.substr(0, what.find('\n'))
              << std::endl;
    return 1;
  }
  return 0;
}
