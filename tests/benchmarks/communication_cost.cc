// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <torch/optim/sgd.h>

#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/collecting_rig.h"
#include "tests/training/gradient_average.h"

namespace gradmon {
namespace {

constexpr int kThreads = 2;

std::vector<Figure> measure(Effort effort) {
  const int before = at::get_num_threads();
  at::set_num_threads(kThreads);
  const int rounds = effort == Effort::quick ? 2 : 40;
  const std::int64_t elements = effort == Effort::quick ? 1 << 12 : 20 << 20;
  torch::nn::Module model;
  at::Tensor parameter = model.register_parameter("weight", at::full({elements}, 0.5));
  parameter.mutable_grad() = at::full({elements}, 0.25);
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0));
  GradientAverage gradients({0, 1, "127.0.0.1", 0}, model.parameters(), Participation::every_parameter);
  CollectingRig rig(R"("cc_distribution": {"enable": true})",
                    {model, optimizer, [&] { gradients.average(); }});
  const auto added = rig.measure(rounds, [&] { read_all({parameter.grad()}); });
  rig.check(static_cast<std::size_t>(rounds));
  at::set_num_threads(before);
  Figure figure = share_of_read("communication_vs_read", added,
                                "the outputs of an allreduce of 80 MiB (gloo, one rank)", "them");
  if (effort == Effort::quick) figure.how += "; quick: of far fewer bytes";
  return {figure};
}

}  // namespace

Bench communication_cost() { return {{"communication_vs_read"}, measure}; }

}  // namespace gradmon
