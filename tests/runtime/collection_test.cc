// SPDX-License-Identifier: Apache-2.0
#include "runtime/collection.h"

#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <algorithm>

#include "control/debian_version.h"
#include "hooks/libtorch_optimizer_state.h"
#include "tests/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

WatchedModel watched(torch::nn::Module& model) {
  WatchedModel all;
  for (const auto& item : model.named_parameters()) all.parameters.push_back({item.key(), 0, item.value()});
  for (const auto& item : model.named_modules("", false))
    all.modules.push_back({item.key(), 0, item.value().get()});
  return all;
}

// A network whose `idle` layer is there and never runs.
struct Network : torch::nn::Module {
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(4, 4));
  torch::nn::Linear idle = register_module("idle", torch::nn::Linear(4, 4));
  at::Tensor forward(const at::Tensor& x) { return fc1->forward(x); }
};

// One rank's collection, step by step, under one plan.
class Steps {
 public:
  explicit Steps(const std::string& config, std::int64_t queue_capacity = 65'536)
      : collection_(settings(scratch_ / "out", queue_capacity), [](Revision, Step) {}) {
    collection_.add_model(watched(network_));
    Plan plan;
    plan.on = true;
    plan.config_text = config;
    collection_.swap({Revision{1}, std::make_shared<const Plan>(std::move(plan)), Step{}});
  }

  void step() {
    collection_.begin_step(step_, HookSet::Collect::yes, 0);
    optimizer_.zero_grad();
    network_.forward(at::ones({2, 4})).sum().backward();
    const LibtorchOptimizerState state(optimizer_);
    collection_.before_update(network_.parameters(), &state);
    optimizer_.step();
    collection_.after_update(network_.parameters(), &state);
    collection_.end_step(0);
    step_.value += 1;
  }

  const TargetStatus* target(const std::string& kind, const std::string& name) {
    list_ = collection_.targets();
    const auto found =
        std::find_if(list_.targets.begin(), list_.targets.end(),
                     [&](const TargetStatus& target) { return target.kind == kind && target.name == name; });
    return found == list_.targets.end() ? nullptr : &*found;
  }
  CollectingReport report() const { return collection_.report(); }

 private:
  static Collection::Settings settings(const std::filesystem::path& out, std::int64_t queue_capacity) {
    Collection::Settings made;
    made.queue_capacity = queue_capacity;
    made.directory =
        std::make_shared<RunDirectory>(out, Rank{0}, "flat", [] { return std::optional(JobIdentity{}); });
    return made;
  }

  const TemporaryDirectory scratch_;
  Network network_;
  torch::optim::SGD optimizer_{network_.parameters(), 0.1};
  Step step_;
  TargetList list_;
  Collection collection_;
};

TEST_CASE("a row that the full queue dropped does not make its target silent") {
  Steps steps(R"({"wg_distribution": true, "targets": {"fc1": {}}, "on_overflow": "drop"})", 1);
  for (int i = 0; i < 1000 && steps.report().dropped == 0; ++i) {
    steps.step();
    CAPTURE(i);
    REQUIRE(steps.report().targets.silent == 0);
  }
  REQUIRE(steps.report().dropped > 0);
}

}  // namespace
}  // namespace gradmon
