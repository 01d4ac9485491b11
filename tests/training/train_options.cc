// SPDX-License-Identifier: Apache-2.0
#include "tests/training/train_options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "tests/training/text_batches.h"

namespace gradmon {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr std::int64_t kMaxNumber = 1'000'000'000'000;
const CLI::Range kPositive(std::int64_t{1}, kMaxNumber);
const CLI::Range kNotNegative(std::int64_t{0}, kMaxNumber);

void add_training(CLI::App& app, TrainOptions& options) {
  app.add_option("--text", options.text, "The text to learn")->check(CLI::ExistingFile);
  app.add_option("--steps", options.steps, "How many steps to run")->check(kPositive);
  app.add_option("--start-iteration", options.start_iteration, "Number of the first step")
      ->check(kNotNegative);
  app.add_option("--seed", options.seed, "Seed of the parameters, batches and delays");
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
         "A fault to find: in this step the gradient of --spike-parameter becomes 1000 times too large on "
         "rank 0, before it is reduced")
      ->check(kNotNegative);
  app.add_option("--nan-step", options.nan_step, "Likewise, but it becomes NaN")->check(kNotNegative);
  app.add_option("--spike-parameter", options.spike_parameter, "See --spike-step");
  app.add_option("--threads", options.threads, "Threads of torch's operators")->check(kPositive);
  app.add_option(
      "--save", options.save,
      "Write the bytes of the final parameters to this file, in the model's order; {rank} stands for "
      "the rank");
  app.add_option(
      "--step-log", options.step_log,
      "Write a line to this file for each step: its number, and the times before and after the call of "
      "gradmon, in microseconds of the monotonic clock; {rank} stands for the rank");
}

void add_model(CLI::App& app, TrainOptions& options) {
  const std::string group = "Model";
  auto& shape = options.shape;
  app.add_option("--layers", shape.layers, "Transformer blocks")->check(kPositive)->group(group);
  app.add_option("--width", shape.width, "A multiple of 4")->check(kPositive)->group(group);
  app.add_option("--batch", options.batch, "Texts in a batch")->check(kPositive)->group(group);
  app.add_option("--context", shape.context, "Bytes in a text")->check(kPositive)->group(group);
  app.add_option("--experts", shape.experts, "Experts of the mixture in each block; 0: a perceptron instead")
      ->check(kNotNegative)
      ->group(group);
  app.add_option("--experts-per-token", shape.experts_per_token, "Experts that each token uses")
      ->check(CLI::Range(1, 2))
      ->group(group);
  app.add_flag_callback(
         "--in-place", [&] { shape.activation = Activation::relu_in_place; },
         "Rectify in place, instead of a GELU")
      ->group(group);
  app.add_flag_callback(
         "--checkpoint", [&] { shape.block_values = BlockValues::recomputed; },
         "Keep no activations within a block; compute them again in the backward")
      ->group(group);
  app.add_flag_callback(
         "--tied", [&] { shape.head_weight = HeadWeight::token_embedding; },
         "head.weight is token_embedding.weight")
      ->group(group);
}

void check_model(const TransformerShape& shape) {
  if (shape.width % 4 != 0) throw CLI::ValidationError("--width", "must be a multiple of 4");
  if (shape.experts != 0 && shape.experts_per_token > shape.experts) {
    throw CLI::ValidationError("--experts-per-token", "must be at most --experts");
  }
}

void add_pace(CLI::App& app, TrainOptions& options) {
  const std::string group = "Pace";
  const auto milliseconds = [](Milliseconds& target) {
    return [&target](std::int64_t value) { target = Milliseconds(value); };
  };
  app.add_option_function<std::int64_t>("--step-ms", milliseconds(options.step_time),
                                        "Minimum duration of a step")
      ->check(kNotNegative)
      ->group(group);
  app.add_option_function<std::int64_t>("--skew-ms", milliseconds(options.skew),
                                        "A random delay up to this, in each step of each rank")
      ->check(kNotNegative)
      ->group(group);
  app.add_option_function<std::int64_t>(
         "--pace-since", [&](std::int64_t value) { options.pace_since = std::chrono::microseconds(value); },
         "A time of the monotonic clock in microseconds: step n begins n times --step-ms after it at the "
         "earliest, and a rank that is late catches up")
      ->check(kNotNegative)
      ->group(group);
  app.add_flag_callback(
         "--uncoupled", [&] { options.coupling = Coupling::uncoupled; },
         "No collective between the ranks: they drift apart")
      ->group(group);
}

void add_launcher(CLI::App& app, TrainOptions& options) {
  const std::string group = "From the launcher's environment";
  app.add_option("--rank", options.rank, "")->envname("RANK")->check(kNotNegative)->group(group);
  app.add_option("--world-size", options.world_size, "")
      ->envname("WORLD_SIZE")
      ->check(kPositive)
      ->group(group);
  app.add_option("--master-address", options.master_address, "")->envname("MASTER_ADDR")->group(group);
  app.add_option("--master-port", options.master_port, "")->envname("MASTER_PORT")->group(group);
}

}  // namespace

TrainOptions parse_train_options(int argc, char** argv) {
  TrainOptions options;
  options.text = default_text();
  CLI::App app("Trains a small transformer on the bytes of a text, watched by gradmon.", "gradmon-train");
  app.option_defaults()->always_capture_default();
  add_training(app, options);
  auto* config = app.add_option("--config", options.config, "gradmon's configuration file")->group("gradmon");
  std::string word;
  app.add_option("--monitor", word, "off: run without gradmon (default: on if --config is given)")
      ->check(CLI::IsMember({"off", "on"}))
      ->group("gradmon");
  add_model(app, options);
  add_pace(app, options);
  add_launcher(app, options);
  try {
    app.parse(argc, argv);
    const bool configured = config->count() != 0;
    if (word == "on" && !configured) throw CLI::RequiresError("--monitor on", "--config");
    if (configured && word != "off") options.monitoring = Monitoring::on;
    check_model(options.shape);
    if (options.rank >= options.world_size)
      throw CLI::ValidationError("RANK", "must be less than WORLD_SIZE");
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  return options;
}

}  // namespace gradmon
