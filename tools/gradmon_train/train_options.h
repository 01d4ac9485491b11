// SPDX-License-Identifier: Apache-2.0
// What the command line and the launcher's environment ask of gradmon-train.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/gradmon_train/transformer_shape.h"

namespace gradmon {

enum class Coupling { coupled, uncoupled };
enum class Monitoring { off, on };

struct TrainOptions {
  std::string text;
  std::int64_t steps = 200;
  std::int64_t start_iteration = 0;
  std::chrono::milliseconds step_time{0};  // at least so long a step
  std::chrono::milliseconds skew{0};       // greatest random delay of a step
  // Monotonic clock: step n does not begin before this + n · step_time. 0: no such pace.
  std::chrono::microseconds pace_since{0};
  Coupling coupling = Coupling::coupled;
  TransformerShape shape{2, 64, 32};
  std::int64_t batch = 4;
  std::int64_t micro_batches = 1;   // of `batch` texts each, in a step
  std::vector<std::string> frozen;  // see freeze()
  int threads = 1;
  std::uint64_t seed = 1;
  std::string config;  // gradmon's; empty: no monitor
  Monitoring monitoring = Monitoring::off;
  std::string save;      // empty: nowhere
  std::string step_log;  // empty: nowhere

  // From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; alone without them.
  int rank = 0;
  int world_size = 1;
  std::string master_address = "127.0.0.1";
  std::uint16_t master_port = 29500;
};

// Prints help (and exits 0) or what is wrong (and exits 2) by itself.
TrainOptions parse_train_options(int argc, char** argv);

}  // namespace gradmon
