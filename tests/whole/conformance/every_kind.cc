// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/conformance/every_kind.h"

#include <c10/core/GradMode.h>
#include <gradmon/observe.h>

#include "tests/hooks/gloo_ranks.h"
#include "tests/whole/conformance/one_rank_job.h"

namespace gradmon {

at::Tensor EveryKindNet::Core::forward(const at::Tensor& q, const at::Tensor& k) { return q * k; }

std::tuple<at::Tensor, at::Tensor> EveryKindNet::Split::forward(const at::Tensor& x) {
  return {x.slice(1, 0, 6) * 2, x.slice(1, 6, 12) * 3};
}

EveryKindNet::EveryKindNet()
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

at::Tensor EveryKindNet::forward(const at::Tensor& x, Branch branch) {
  const at::Tensor hidden = observe(*act_)(observe(*fc1_)(x));
  if (branch == Branch::left_out) return hidden.pow(2).mean();
  const at::Tensor heads = hidden.view({3, 2, 3, 4});  // s,b,h,d
  const at::Tensor mixed = observe(*core_)(heads, heads * 0.5).reshape({6, 12});
  const auto [logits, rest] = observe(*split_)(mixed);
  if (communicate) communicate(rest.detach().clone());
  const at::Tensor routed = observe(*router_)(logits);
  return routed.pow(2).mean() + observe(*fc2_)(observe(*fc2_)(rest)).pow(2).mean();
}

EveryKindTraining::EveryKindTraining() : optimizer_(net_.parameters(), torch::optim::AdamWOptions(0.01)) {}

void EveryKindTraining::run(Monitor& monitor, int steps, const std::function<Branch(int)>& branch_of) {
  monitor.watch(net_, optimizer_);
  run_ranks(1, [&](GlooGroup& group) {
    net_.communicate = [&](const at::Tensor& tensor) { group.all_reduce({tensor})->wait(); };
    for (Loop loop = Loop::goes_on; steps_done_ < steps && loop == Loop::goes_on; ++steps_done_) {
      optimizer_.zero_grad();
      double loss_of_step = 0;
      for (int micro = 0; micro < kMicroBatches; ++micro) {
        const at::Tensor loss =
            observe(net_)(sine_values({6, 8}, steps_done_ * 1.1 + micro * 0.4), branch_of(steps_done_));
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

}  // namespace gradmon
