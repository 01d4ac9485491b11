// SPDX-License-Identifier: Apache-2.0
// The time that collecting adds to a training step: every fifth step is collected. It and the one before it,
// at whose end the hooks attach, are compared with the steps before and after these two.
#pragma once

#include <gradmon/monitor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tests/benchmarks/measure/figure.h"
#include "tests/benchmarks/measure/interleave.h"
#include "tests/benchmarks/measure/scratch_job.h"

namespace gradmon {

double seconds_of(const std::function<void()>& task);

// Reads all tensors once, on torch's threads.
void read_all(const std::vector<at::Tensor>& tensors);

// Training thread. Model and optimizer must outlive it.
class CollectingRig {
 public:
  struct Step {
    torch::nn::Module& model;
    torch::optim::Optimizer& optimizer;
    std::function<void()> backward;  // the whole step except the optimizer
  };

  // `kinds`: the config keys to switch on, as in `"wg_distribution": true`; all six ops. `spent`: the time of
  // steps; TimeBase::thread is that of the training thread, for models whose steps run on no other.
  CollectingRig(const std::string& kinds, Step step, TimeBase spent = TimeBase::wall);

  struct Added {
    std::vector<double> seconds;  // of each collected step and the one before it, at whose end it begins,
                                  // minus the two steps beside these
    std::vector<double> idle;     // seconds of each step beside these
    std::vector<double> reads;    // seconds of `read`
  };
  // `read`: the work to compare with; runs once per round, before the steps.
  Added measure(int rounds, const std::function<void()>& read);

  // The cost of a collected step as a share of a step's time, over the last eight, as
  // measured by the monitor: only its own time on the training thread, so that the noise
  // of the steps does not hide it.
  double own_share() const;

  // Stops the monitor. Throws if rows were dropped, or fewer than `rows` are on disk.
  void check(std::size_t rows);

 private:
  double time_step();
  bool last_but_one_was_collected() const;

  const ScratchJob job_;
  const Step step_;
  const TimeBase spent_;
  Monitor monitor_;
  std::int64_t next_ = 0;
  std::int64_t effective_ = 0;
};

// The added time divided by the time of the read; goal 1.5. `adding` and `of` describe what
// was collected, and what was read.
Figure share_of_read(std::string name, const CollectingRig::Added& added, const std::string& adding,
                     const std::string& of);

}  // namespace gradmon
