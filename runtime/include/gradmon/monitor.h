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

#include "control/agree/journal.h"
#include "gradmon/parallel_groups.h"
#include "hooks/stats/attention_layout.h"

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

// What a program may say of itself; what it does not say comes from the
// environment (spec/config.md: RANK and its relatives, GRADMON_ENDPOINT,
// MONITOR_OUTPUT_DIR, DYNAMIC_MONITOR).
struct MonitorOptions {
  std::optional<int> rank;                          // 0 … world_size − 1
  std::optional<int> world_size;                    // ≥ 1
  std::optional<std::string> endpoint;              // ipc:///PATH or tcp://127.0.0.1:PORT
  std::optional<std::filesystem::path> output_dir;  // ./monitor_output
  std::optional<bool> dynamic;                      // false: static mode
  std::int64_t start_iteration = 0;                 // number of the first step
  int grad_acc_steps = 1;                           // micro batches that every step accumulates
  ParallelGroups groups;                            // who holds the same parameters
  bool keep_last_step = false;                      // for metrics()
  // What the ranks of this launch alone have in common, none while it is not known;
  // asked on any thread where the environment does not name the launch. Null: nothing.
  std::function<std::optional<std::string>()> launch_nonce = {};
};

// A row of a step that has been collected, as it stands in the files.
struct Metric {
  std::string kind;  // the file's prefix: "grad_reduced", …
  int vpp_stage = 0;
  std::string name;
  std::int64_t step = 0;
  std::optional<int> micro_step;                       // none: of the whole step
  std::vector<std::pair<std::string, double>> values;  // by column: "norm", "mg_direction", …
};

// What step() says of the loop around it: `may_end` where the plan wanted to see
// one step only (print_struct, cc_log_only) and has, on all ranks at the same
// step. A program that goes on training is left in peace.
enum class Loop : std::uint8_t { goes_on, may_end };

// What a training program holds: one per process, from before the training loop
// to after it. All members are called by the training thread, but for status().
//
// It never throws of its own, the constructor in static mode apart; it blocks
// nowhere but at the boundary of a step for which a verdict is due (`max_wait`,
// 2 s, at most) and, while collecting, at a full queue (2 s in one step at
// most). What goes wrong is logged once and stands in status(). In a forked child
// the copy does nothing.
class Monitor {
 public:
  // Static mode: throws std::invalid_argument where the config is missing or
  // invalid. Dynamic mode: waits for a valid one, off.
  explicit Monitor(std::filesystem::path config, MonitorOptions options = {});
  // stop().
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Takes down the names of a model's parameters: the boundary before the first
  // step. Several models are the chunks (vpp_stage 0, 1, …) of one. The model
  // outlives the monitor's last step; parameters replaced later are not seen.
  void watch(torch::nn::Module& model) noexcept;
  void watch(torch::nn::Module& model, torch::optim::Optimizer& optimizer) noexcept;

  // update(optimizer), then step(). What the optimizer throws passes through.
  Loop step(torch::optim::Optimizer& optimizer);
  // Calls optimizer.step(), and reads what it is about to use and what it has
  // made of it. With several optimizers, once for each.
  void update(torch::optim::Optimizer& optimizer);
  // The same for an optimizer that has the loss worked out by itself, once or more
  // often (LBFGS): what it is about to use is what stands after the last call.
  using Closure = std::function<at::Tensor()>;  // returns the loss
  Loop step(torch::optim::Optimizer& optimizer, const Closure& closure);
  void update(torch::optim::Optimizer& optimizer, const Closure& closure);
  // Ends the step: once an iteration, on every rank.
  Loop step() noexcept;

  // Training scalars, of the step that step() will end; those that the config's
  // `scalars` names go to the log, to records or both, the others nowhere. On a
  // step that is not collected each of these costs a load and a compare.
  //
  // A value: "loss", "learning-rate", "grad-norm", any name. Said again within a
  // step it is replaced; "local_loss" is besides summed into "device_local_loss".
  void scalar(std::string_view name, double value) noexcept;
  // So many samples more have been seen, by all ranks together: every rank says
  // the size of the job's whole batch, or on each micro batch the whole of that.
  // Before the first step: those of an earlier run. Counted on every step.
  void samples(std::int64_t count) noexcept;
  // Tokens that each expert of a mixture-of-experts layer was given; counts of
  // several calls in a step are added. "expert_load" is each expert's share.
  void expert_load(std::string_view layer, const std::vector<std::int64_t>& tokens) noexcept;

  // Q and K of an attention, in the forward: its `attention_hook` row (see
  // <gradmon/observe.h>, whose attention() does the same without a monitor at
  // hand). The axes are those of the config's `sa_order`. Any thread.
  void attention(std::string_view name, const at::Tensor& q, const at::Tensor& k, Causal causal) noexcept;

  // Ask the job for a change, as gradmonctl does: all ranks switch at one agreed
  // step soon (status() tells which), and the config file says so too. Any rank may ask;
  // those that ask for the same in the same step ask once. Returns at once; what is
  // refused is logged.
  void on(std::optional<std::int64_t> collect_times = {},
          std::optional<std::int64_t> step_interval = {}) noexcept;
  void off() noexcept;
  // A key of the config, or a JSON pointer, and its value as JSON text. In static mode,
  // where on() and off() are refused, it holds in this rank alone, from the next step
  // on, for what the config then still has to collect; the file is left.
  void set(std::string_view key, std::string_view json) noexcept;

  // All rows of the step that was collected last, without the disk, in the order of
  // the files; waits for the writer, a second at most. Empty where that step had
  // none, where nothing was collected yet, and where neither keep_last_step nor the config's format "api" asks for it.
  std::vector<Metric> metrics() const;

  // Detaches everything, writes what has been collected, and leaves the job. Nothing
  // is collected afterwards. No row is given up while rows are being written: the
  // writer is waited for until 2 s after its last progress, 30 s at most, and the
  // job's other ranks 0.5 s. What is given up is logged and counts as dropped.
  void stop() noexcept;
  // The same within `at_most` in all, whatever the writer does: less is less patient,
  // more is more. Below 0 counts as 0: rows that are not written yet are given up.
  void stop(std::chrono::milliseconds at_most) noexcept;

  // Any thread, at most 100 ms old: in rank 0 of the whole job, elsewhere of this rank.
  Status status() const;

 private:
  friend class MonitorBinding;
  class Session;
  std::unique_ptr<Session> session_;  // null: could not be set up, or after a fork
};

}  // namespace gradmon
