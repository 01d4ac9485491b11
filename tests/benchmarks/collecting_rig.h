// SPDX-License-Identifier: Apache-2.0
// The rig of all benchmarks that train: a job in a scratch directory, torch's threads, and the time that
// collecting adds to a step.
#pragma once

#include <gradmon/monitor.h>
#include <sched.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/benchmarks/measure.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {

// A temporary directory with a config file.
class ScratchJob {
 public:
  explicit ScratchJob(const std::string& config) { write_text(this->config(), config); }

  const std::filesystem::path& path() const { return directory_.path(); }
  std::filesystem::path config() const { return directory_ / "monitor_config.json"; }
  std::filesystem::path output() const { return directory_ / "monitor_output"; }
  MonitorOptions options() const;  // of a job with one rank in dynamic mode

 private:
  const TemporaryDirectory directory_;
};

// Steps the monitor until its status has this state and reason ("": any reason). Returns the
// number of steps. Throws std::runtime_error after 20 s.
std::int64_t step_until(Monitor& monitor, const std::string& state, const std::string& reason);

// The number of rows in all CSV files below the directory.
std::size_t records_on_disk(const std::filesystem::path& output);

// For its lifetime, torch uses this number of threads, and Processors::one pins this thread to a processor.
enum class Processors { all, one };
class TorchThreads {
 public:
  explicit TorchThreads(int threads, Processors processors = Processors::all);
  ~TorchThreads();
  TorchThreads(const TorchThreads&) = delete;
  TorchThreads& operator=(const TorchThreads&) = delete;

 private:
  cpu_set_t allowed_{};
  const int before_;
};

// Reads all tensors once, on torch's threads.
void read_all(const std::vector<at::Tensor>& tensors);

// Every fifth step is collected. It and the one before it, at whose end the hooks attach, are compared with
// the steps before and after these two. Training thread. Model and optimizer must outlive it.
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

  const ScratchJob job_;
  const Step step_;
  const TimeBase spent_;
  Monitor monitor_;
};

}  // namespace gradmon
