// SPDX-License-Identifier: Apache-2.0
#include <c10/core/GradMode.h>
#include <gradmon/monitor.h>
#include <gradmon/observe.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <tuple>

#include "tests/hooks/gloo_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/split_csv.h"
#include "tests/whole/conformance/one_rank_job.h"

namespace gradmon {
namespace {

// --- A small training job with rows of every kind.

// The config keys that enable every kind.
constexpr const char* kEveryKind = R"("wg_distribution": true, "monitor_mbs_grad": true,
    "param_distribution": true, "mv_distribution": true, "mg_direction": true, "xy_distribution": true,
    "all_xy": true, "cc_distribution": {"enable": true, "cc_pre_hook": true}, "recording_l2_features": true,
    "l2_targets": {"attention_hook": ["core"], "linear_hook": [], "moe_router_weight_hook": ["router"],
                   "moe_router_logit_hook": ["router"]},
    "scalars": {"loss": "records"}, "ops": ["norm", "min", "max", "mean", "nans", "zeros"])";

// fc1, an in-place ReLU, core (Q and K), split (two outputs), router on the first output, fc2 twice on the
// second. `spare` never runs.
class EveryKindNet : public torch::nn::Module {
 public:
  EveryKindNet()
      : fc1_(register_module("fc1", torch::nn::Linear(8, 12))),
        act_(register_module("act", torch::nn::ReLU(torch::nn::ReLUOptions(true)))),
        core_(register_module("core", std::make_shared<Core>())),
        split_(register_module("split", std::make_shared<Split>())),
        router_(register_module("router", torch::nn::Linear(6, 3))),
        fc2_(register_module("fc2", torch::nn::Linear(6, 6))),
        spare_(register_module("spare", torch::nn::Linear(4, 4))) {
    const c10::NoGradGuard no_grad;
    double phase = 0;
    for (at::Tensor& parameter : parameters())
      parameter.copy_(sine_values(parameter.sizes(), phase += 0.3) * 0.2);
  }
  // From 6 × 8 to the loss.
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = observe(*act_)(observe(*fc1_)(x));
    const at::Tensor heads = hidden.view({3, 2, 3, 4});  // s,b,h,d
    const at::Tensor mixed = observe(*core_)(heads, heads * 0.5).reshape({6, 12});
    const auto [logits, rest] = observe(*split_)(mixed);
    if (communicate) communicate(rest.detach().clone());
    const at::Tensor routed = observe(*router_)(logits);
    return routed.pow(2).mean() + observe(*fc2_)(observe(*fc2_)(rest)).pow(2).mean();
  }

  std::function<void(const at::Tensor&)> communicate;  // called in forward(), if set

 private:
  struct Core : torch::nn::Module {
    at::Tensor forward(const at::Tensor& q, const at::Tensor& k) { return q * k; }
  };
  struct Split : torch::nn::Module {
    std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
      return {x.slice(1, 0, 6) * 2, x.slice(1, 6, 12) * 3};
    }
  };

  torch::nn::Linear fc1_;
  torch::nn::ReLU act_;
  std::shared_ptr<Core> core_;
  std::shared_ptr<Split> split_;
  torch::nn::Linear router_, fc2_, spare_;
};

// Trains on fixed inputs, with two micro batches a step.
class EveryKindTraining {
 public:
  static constexpr int kMicroBatches = 2;

  EveryKindTraining() : optimizer_(net_.parameters(), torch::optim::AdamWOptions(0.01)) {}
  // Watches the model and makes `steps` steps in a Gloo group of one rank, whose all_reduce forward() calls.
  // Ends earlier if Monitor::step() says that the loop may end.
  void run(Monitor& monitor, int steps) {
    monitor.watch(net_, optimizer_);
    run_ranks(1, [&](GlooGroup& group) {
      net_.communicate = [&](const at::Tensor& tensor) { group.all_reduce({tensor})->wait(); };
      for (Loop loop = Loop::goes_on; steps_done_ < steps && loop == Loop::goes_on; ++steps_done_) {
        optimizer_.zero_grad();
        double loss_of_step = 0;
        for (int micro = 0; micro < kMicroBatches; ++micro) {
          const at::Tensor loss = observe(net_)(sine_values({6, 8}, steps_done_ * 1.1 + micro * 0.4));
          loss.backward();
          loss_of_step += loss.item<double>();
        }
        monitor.samples(6 * kMicroBatches);
        monitor.scalar("loss", loss_of_step);
        loop = monitor.step(optimizer_);
      }
      net_.communicate = nullptr;
    });
  }
  int steps_done() const { return steps_done_; }

 private:
  EveryKindNet net_;
  torch::optim::AdamW optimizer_;
  int steps_done_ = 0;
};

// --- Golden files of the names of files, their columns, and the names in their rows with
// their order. Users' scripts rely on them: a change here breaks those scripts.

namespace fs = std::filesystem;

bool is_value(const std::string& column) {
  static const std::set<std::string> key_columns{"vpp_stage", "name",  "step", "micro_step",
                                                 "samples",   "shape", "dtype"};
  return key_columns.count(column) == 0;
}

// The file with `#` for each number that varies. Empty cells and `nan` stay.
std::string without_values(const fs::path& csv) {
  std::ifstream file(csv);
  std::string line;
  std::getline(file, line);
  std::string text = line + "\n";
  const std::vector<std::string> header = split_csv(line);
  while (std::getline(file, line)) {
    std::vector<std::string> cells = split_csv(line);
    REQUIRE(cells.size() == header.size());
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (is_value(header[i]) && !cells[i].empty() && cells[i] != "nan") cells[i] = "#";
      text += (i == 0 ? "" : " | ") + cells[i];
    }
    text += "\n";
  }
  return text;
}

std::vector<fs::path> files_below(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST_CASE("files and columns and row names of every kind stay as they are") {
  MonitorOptions options;
  options.start_iteration = 1;
  options.grad_acc_steps = EveryKindTraining::kMicroBatches;
  OneRankJob job(std::string(kEveryKind) + R"(, "step_count_per_record": 2)", false, options);
  EveryKindTraining().run(*job.monitor, 2);
  job.monitor->stop();
  REQUIRE(job.monitor->status().ranks.front().error.empty());
  std::string text;
  for (const fs::path& file : files_below(run_directory_in(job.directory / "out"))) {
    text += "== " + file.filename().string() + "\n";
    if (file.extension() == ".csv") text += without_values(file);
  }
  CHECK(golden_difference("every_kind.txt", text) == "");
}

TEST_CASE("module structure and call stacks are complete after one step and the loop may end") {
  OneRankJob job(R"("print_struct": true, "stack_info": true)");
  EveryKindTraining training;
  training.run(*job.monitor, 5);
  job.monitor->stop();
  CHECK(training.steps_done() == 1);
  const fs::path out = job.directory / "out";
  const std::string structure = read_text(out / "module_struct" / "rank0" / "module_struct.json");
  CHECK(golden_difference("module_struct.json", structure) == "");
  const std::string stacks = read_text(run_directory_in(out) / "stack_info.csv");
  CHECK(golden_difference("stack_info.csv", stacks) == "");
}

}  // namespace
}  // namespace gradmon
