// SPDX-License-Identifier: Apache-2.0
// What collecting adds to a step of any training: every second step is
// collected, and is held against the two beside it.
#pragma once

#include <gradmon/monitor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tools/benchmarks/measure/figure.h"
#include "tools/benchmarks/measure/scratch_job.h"

namespace gradmon {

double seconds_of(const std::function<void()>& task);

// Reads all tensors once, on torch's threads.
void read_all(const std::vector<at::Tensor>& tensors);

// Training thread. Model and optimizer outlive it.
class CollectingRig {
 public:
  struct Step {
    torch::nn::Module& model;
    torch::optim::Optimizer& optimizer;
    std::function<void()> backward;  // all of the step but the optimizer's part
  };

  // `kinds`: what the config switches on, as in `"wg_distribution": true`; all six ops.
  CollectingRig(const std::string& kinds, Step step);

  struct Added {
    std::vector<double> seconds;  // of each collected step, over the mean of its neighbours
    std::vector<double> idle;     // seconds of a step that is not collected
    std::vector<double> reads;    // seconds of `read`
  };
  // `read`: what it is compared with, done once a round before the steps.
  Added measure(int rounds, const std::function<void()>& read);

  // What the monitor says itself that a collected step costs, of a step's time, over
  // the last eight: only its own time on the training thread, which noise of the
  // steps does not drown.
  double own_share() const;

  // Ends the monitor. Throws where rows were dropped, or fewer than these are on disk.
  void check(std::size_t rows);

 private:
  double time_step();
  bool next_is_collected() const { return next_ >= effective_ && (next_ - effective_) % 2 == 0; }

  const ScratchJob job_;
  const Step step_;
  Monitor monitor_;
  std::int64_t next_ = 0;
  std::int64_t effective_ = 0;
};

// What was added over the read beside it; goal 1.5. `adding` and `of`: in words
// what was collected, and what is read.
Figure share_of_read(std::string name, const CollectingRig::Added& added, const std::string& adding,
                     const std::string& of);

}  // namespace gradmon
