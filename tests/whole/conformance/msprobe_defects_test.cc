// SPDX-License-Identifier: Apache-2.0
// Defects that users met in msprobe's monitor, and that gradmon must not have. Here:
// those of collection. Those of switching and of the config file have other tests
// (`ctest -L 'agreement|configfile|cases'`).
#include <ATen/ops/rand.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <set>

#include "tests/hooks/gradient_hooks_on.h"
#include "tests/support/catch.h"
#include "tests/support/real_job.h"
#include "tests/support/scale.h"
#include "tests/whole/conformance/one_rank_job.h"

namespace gradmon {
namespace {

struct TwoTowers : torch::nn::Module {
  torch::nn::Linear left{register_module("left", torch::nn::Linear(4, 4))};
  torch::nn::Linear right{register_module("right", torch::nn::Linear(4, 4))};
};

std::size_t hooks_on(const torch::nn::Module& model) {
  std::size_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += gradient_hooks_on(parameter);
  return count;
}

using Steps = std::set<std::string>;

TEST_CASE("repeated plan changes never stack hooks and off removes all of them") {
  OneRankJob job(R"("wg_distribution": true)", true);
  TwoTowers model;
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  job.monitor->watch(model, optimizer);
  const auto step = [&] {
    optimizer.zero_grad();
    model.left->forward(at::rand({2, 4})).sum().backward();
    job.monitor->step(optimizer);
  };
  const auto until = [&](const std::string& state, Revision after) {
    return eventually([&] {
      step();
      const Status status = job.monitor->status();
      return status.state == state && status.revision > after && !status.pending;
    });
  };
  std::set<std::size_t> seen;
  for (int i = 0; i < scaled(10, 50); ++i) {
    const Revision before = job.monitor->status().revision;
    job.write(R"({"wg_distribution": true, "dynamic_on": true, "collect_times": )" +
              std::to_string(1000 + i) + "}");
    REQUIRE(until("on", before));
    seen.insert(hooks_on(model));
  }
  REQUIRE(seen == std::set<std::size_t>{4});
  const Revision before = job.monitor->status().revision;
  job.write(R"({"dynamic_on": false})");
  REQUIRE(until("off", before));
  REQUIRE(hooks_on(model) == 0);
}

TEST_CASE("two optimizers in one step count as one step") {
  OneRankJob job(R"("wg_distribution": true, "param_distribution": true)");
  TwoTowers model;
  torch::optim::SGD left(model.left->parameters(), 0.1), right(model.right->parameters(), 0.1);
  job.monitor->watch(model, left);
  for (int i = 0; i < 3; ++i) {
    left.zero_grad();
    right.zero_grad();
    (model.left->forward(at::rand({2, 4})) + model.right->forward(at::rand({2, 4}))).sum().backward();
    job.monitor->update(left);
    job.monitor->update(right);
    job.monitor->step();
  }
  for (const char* prefix : {"grad_reduced", "param_origin", "param_updated"}) {
    const auto steps = job.steps_by_name(prefix);
    REQUIRE(steps.size() == 4);
    for (const auto& [name, of] : steps) {
      CAPTURE(prefix, name);
      CHECK(of == Steps{"0", "1", "2"});
    }
  }
}

}  // namespace
}  // namespace gradmon
