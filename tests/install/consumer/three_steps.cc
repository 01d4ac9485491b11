// SPDX-License-Identifier: Apache-2.0
// A training program outside gradmon's tree, with three monitored steps.
#include <gradmon/monitor.h>
#include <gradmon/observe.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <iostream>

#ifdef NDEBUG
#error "linking gradmon defines NDEBUG, which removes the program's own assertions"
#endif
#if __has_include("control/step.h") || __has_include("control/vocabulary.h")
#error "gradmon's internal headers are found under names that the program may use itself"
#endif

int main(int, char** argv) {
  torch::nn::Linear model(3, 2);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  gradmon::Monitor monitor(argv[1]);
  monitor.watch(*model, optimizer);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss = gradmon::observe(model)(torch::ones({4, 3})).sum();
    loss.backward();
    gradmon::tap("loss", loss);
    monitor.attention("none", torch::ones({1, 1, 1, 1}), torch::ones({1, 1, 1, 1}), gradmon::Causal::no);
    monitor.samples(4);
    monitor.scalar("loss", loss.item<double>());
    monitor.expert_load("none", {1, 2});
    monitor.step(optimizer);
  }
  monitor.stop();
  // The other members, so that they are linked. They do nothing after stop().
  torch::nn::Linear second(2, 2);
  monitor.watch(*second);
  const gradmon::Monitor::Closure closure = [&] { return second(torch::ones({1, 2})).sum(); };
  monitor.update(optimizer);
  monitor.update(optimizer, closure);
  monitor.step(optimizer, closure);
  monitor.step();
  monitor.on(1, 1);
  monitor.off();
  monitor.set("ndigits", "3");
  monitor.metrics();
  gradmon::attention(*second, torch::ones({1, 1, 1, 1}), torch::ones({1, 1, 1, 1}), gradmon::Causal::no);
  monitor.stop(std::chrono::milliseconds(0));
  std::cout << monitor.status().mode << '\n';
}
