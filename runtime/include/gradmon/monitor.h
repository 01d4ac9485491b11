// SPDX-License-Identifier: Apache-2.0
// gradmon's public interface in C++.
//
//   gradmon::Monitor monitor("monitor_config.json");
//   monitor.watch(*model, optimizer);
//   for (;;) {
//     optimizer.zero_grad(); loss.backward(); average(); clip();
//     if (monitor.step(optimizer) == gradmon::Loop::may_end) break;  // instead of optimizer.step()
//   }
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradmon/alert.h"
#include "gradmon/parallel_groups.h"
#include "gradmon/status.h"
#include "gradmon/types.h"

namespace at {
class Tensor;
}
namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace gradmon {

// Options of a Monitor. An option that is not set comes from the environment: RANK and
// WORLD_SIZE (or what launchers set in their place), GRADMON_ENDPOINT, MONITOR_OUTPUT_DIR,
// DYNAMIC_MONITOR.
struct MonitorOptions {
  std::optional<int> rank;        // 0 … world_size − 1
  std::optional<int> world_size;  // ≥ 1
  // The replica group of both (torchft), unless REPLICA_GROUP_ID names it. Each group is a separate job, with
  // its output in group-NAME of the output directory.
  std::string replica_group = {};
  std::optional<std::string> endpoint;              // of rank 0's hub: ipc:///PATH or tcp://HOST:PORT
  std::optional<std::filesystem::path> output_dir;  // for the rows; ./monitor_output
  std::optional<bool> dynamic;                      // false: static mode
  std::int64_t start_iteration = 0;                 // number of the first step
  int grad_acc_steps = 1;                           // micro batches per step, at least 1
  bool short_steps = false;                         // some steps have fewer micro batches (an epoch's last)
  ParallelGroups groups;                            // ranks with the same parameters
  bool keep_last_step = false;                      // for metrics()
  // Returns a text that only the ranks of this launch share; nullopt while it is unknown. Called on any
  // thread, and only if the environment does not identify the launch. May be null.
  std::function<std::optional<std::string>()> launch_nonce = {};
};

// One row of a collected step, with the values that the files have.
struct Metric {
  std::string kind;  // the file's prefix: "grad_reduced", …
  int vpp_stage = 0;
  std::string name;
  std::int64_t step = 0;
  std::optional<int> micro_step;                       // nullopt: the row covers the whole step
  std::vector<std::pair<std::string, double>> values;  // by column: "norm", "mg_direction", …
};

// The result of step() for the training loop. `may_end`: the requested output is complete after one step
// (print_struct, cc_log_only), on all ranks at the same step. The loop may go on anyway.
enum class Loop : std::uint8_t { goes_on, may_end };

// Collects the rows that the config selects from this rank's training loop. A program makes one Monitor per
// process, before the training loop, and destroys it after the loop.
//
// Threads: the training thread calls all members; status(), alerts() and attention() may be called on any.
//
// Errors: no member throws, except the constructor in static mode and what the optimizer itself
// throws. An error of gradmon is logged once and shown in status().
//
// Waiting: step() waits at a step boundary for a verdict (at most `max_wait`, 2 s) and, while
// collecting, for a place in a full queue (at most 2 s per step).
//
// In a forked child the copy does nothing.
class Monitor {
 public:
  // Static mode: reads the config now. Throws std::invalid_argument, with file, line and key, if it is
  // missing or invalid. Dynamic mode: stays off until a valid config exists.
  explicit Monitor(std::filesystem::path config, MonitorOptions options = {});
  // stop().
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Watches a model; call it before the first step. Each further model is the next chunk
  // (vpp_stage 0, 1, …). The model must outlive the last step. Parameters that are replaced
  // later are not seen.
  void watch(torch::nn::Module& model) noexcept;
  void watch(torch::nn::Module& model, torch::optim::Optimizer& optimizer) noexcept;

  // Calls update(optimizer), then step().
  Loop step(torch::optim::Optimizer& optimizer);
  // Calls optimizer.step(). Reads gradients, weights and moments before it, and weights after
  // it. With several optimizers: one call for each. Exceptions of the optimizer pass through.
  void update(torch::optim::Optimizer& optimizer);
  // The same for an optimizer that calls a closure, once or several times (LBFGS). Reads the gradients of its
  // last call.
  using Closure = std::function<at::Tensor()>;  // returns the loss
  Loop step(torch::optim::Optimizer& optimizer, const Closure& closure);
  void update(torch::optim::Optimizer& optimizer, const Closure& closure);
  // Ends the step. Call it once per iteration, on every rank.
  Loop step() noexcept;

  // Training scalars of the current step. The config key `scalars` names those that are
  // written, and where. In a step that is not collected each call costs a load and a compare.
  //
  // Reports a value under any name: "loss", "learning-rate". A second value in the same step replaces the
  // first. Values of "local_loss" are also summed into "device_local_loss". A value that is reported just
  // after step() belongs to the step that has ended, until the next forward with gradients, backward or
  // update; unless this name was reported within that step. A second one after the step is ignored.
  void scalar(std::string_view name, double value) noexcept;
  // Adds to the number of samples that all ranks together have processed. Every rank reports the
  // size of the whole job's batch (or micro batch). Before the first step: the samples of an
  // earlier run; not needed with the config key `append_output`. Counted in every step, collected or not.
  void samples(std::int64_t count) noexcept;
  // Adds the tokens that each expert of a mixture-of-experts layer got in this step. "expert_load" is each
  // expert's share of the tokens, 0 to 1.
  void expert_load(std::string_view layer, const std::vector<std::int64_t>& tokens) noexcept;

  // Reports Q and K of an attention, during its forward, for a row of `attention_hook`. Both are
  // 4-D, with axes as the config key `sa_order` says. <gradmon/observe.h> has the same without a
  // monitor. Any thread.
  void attention(std::string_view name, const at::Tensor& q, const at::Tensor& k, Causal causal) noexcept;

  // Ask the job for a change, as gradmonctl does. All ranks switch at one agreed step, which status() shows,
  // and the config file is updated. Any rank may ask; the same request of several ranks in the same step
  // counts once. They return at once; a refusal is logged. Static mode refuses on() and off().
  void on(std::optional<std::int64_t> collect_times = {},
          std::optional<std::int64_t> step_interval = {}) noexcept;
  void off() noexcept;
  // Sets a key of the config (or a JSON pointer) to a value in JSON. In static mode the change
  // holds for this rank only, from the next step on, and the file stays as it is.
  void set(std::string_view key, std::string_view json) noexcept;

  // Rows of the last collected step, from memory, in the order of the files. Needs `keep_last_step` or the
  // config's format "api"; empty without them, before the first collected step, and if that step had no rows.
  // Waits until the writer thread has them, for 1 s at most, in the first step 6 s, because the job's hub may
  // not have answered yet. If the wait times out, returns the rows of an earlier step.
  std::vector<Metric> metrics() const;

  // The last 256 alerts of this rank, oldest first. A step's alerts appear once the writer thread has written
  // its rows. Any thread.
  std::vector<Alert> alerts() const;

  // Detaches all hooks, writes the collected rows and leaves the job. Nothing is collected afterwards. Waits
  // for the writer until 2 s after its last progress, 30 s at most, and 0.5 s for the other ranks. Abandoned
  // rows are logged and count as dropped.
  void stop() noexcept;
  // The same, within `at_most` in all. 0 or less abandons all rows that are not written yet.
  void stop(std::chrono::milliseconds at_most) noexcept;

  // State of the whole job in rank 0, of this rank in others; at most 100 ms old. Any thread.
  Status status() const;

 private:
  friend class MonitorBinding;
  class Session;
  std::unique_ptr<Session> session_;  // null: could not be set up, or after a fork
};

}  // namespace gradmon
