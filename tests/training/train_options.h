// SPDX-License-Identifier: Apache-2.0
// The options of gradmon-train, from the command line and the launcher's environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/training/transformer_shape.h"

namespace gradmon {

enum class Coupling { coupled, uncoupled };
enum class Monitoring { off, on };

struct TrainOptions {
  std::string text;
  std::int64_t steps = 200;
  std::int64_t start_iteration = 0;
  std::chrono::milliseconds step_time{0};  // minimum duration of a step
  std::chrono::milliseconds skew{0};       // maximum random delay of a step
  // A time of the monotonic clock: step n does not begin before pace_since + n · step_time. 0: off.
  std::chrono::microseconds pace_since{0};
  Coupling coupling = Coupling::coupled;
  TransformerShape shape{2, 64, 32};
  std::int64_t batch = 4;
  std::int64_t micro_batches = 1;          // of `batch` texts each, in a step
  std::vector<std::string> frozen;         // see freeze()
  double max_norm = 1.0;                   // of the gradients, which are clipped to it; 0: not clipped
  std::optional<std::int64_t> spike_step;  // see --spike-step
  std::optional<std::int64_t> nan_step;    // see --nan-step
  std::string spike_parameter = "head.weight";
  int threads = 1;
  std::uint64_t seed = 1;
  std::string config;  // gradmon's config file; empty: no monitor
  Monitoring monitoring = Monitoring::off;
  std::string save;      // file for the final parameters; empty: none
  std::string step_log;  // file for the times of each step; empty: none

  // From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; the defaults are a single rank.
  int rank = 0;
  int world_size = 1;
  std::string master_address = "127.0.0.1";
  std::uint16_t master_port = 29500;
};

// With --help prints help and exits with 0. Prints a usage error and exits with 2.
TrainOptions parse_train_options(int argc, char** argv);

}  // namespace gradmon
