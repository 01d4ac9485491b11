// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <gradmon/observe.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "tools/benchmarks/benches.h"
#include "tools/benchmarks/collecting_rig.h"
#include "tools/benchmarks/measure/range.h"
#include "tools/benchmarks/training.h"

namespace gradmon {
namespace {

constexpr int kThreads = 2;
constexpr const char* kActivations = R"("xy_distribution": true, "all_xy": true)";
constexpr int kLinks = 24;

// Costs hardly more than writing its output.
struct Halve : torch::nn::Module {
  static at::Tensor forward(const at::Tensor& x) { return x * 0.5; }
};

// A chain of modules with large activations and little computation.
struct CheapChain : torch::nn::Module {
  explicit CheapChain(std::int64_t rows) : first(register_parameter("first", at::full({rows, 2048}, 0.25))) {
    for (int i = 0; i < kLinks; ++i)
      links.push_back(register_module("link" + std::to_string(i), std::make_shared<Halve>()));
  }
  at::Tensor forward() {
    at::Tensor x = first * 1.0;
    for (const auto& link : links) x = observe(*link)(x);
    return x;
  }

  at::Tensor first;
  std::vector<std::shared_ptr<Halve>> links;
};

Figure against_read(Effort effort) {
  const int rounds = effort == Effort::quick ? 2 : 120;
  CheapChain chain(effort == Effort::quick ? 8 : 512);
  torch::optim::SGD optimizer(chain.parameters(), torch::optim::SGDOptions(0));
  CollectingRig rig(kActivations, {chain, optimizer, [&] {
                                     optimizer.zero_grad();
                                     observe(chain)().sum().backward();
                                   }});
  std::vector<at::Tensor> alike;  // one for each activation that is collected
  for (int i = 0; i <= kLinks; ++i) alike.push_back(at::full_like(chain.first, 0.5));
  const auto added = rig.measure(rounds, [&] {
    read_all(alike);
    read_all(alike);
  });
  rig.check(4 * kLinks * static_cast<std::size_t>(rounds));
  Figure figure =
      share_of_read("activations_vs_read", added,
                    "all inputs, outputs and their gradients of 24 modules that hand on 4 MiB each",
                    "the " + std::to_string(2 * (kLinks + 1)) + " tensors there are");
  figure.goal = Goal{Goal::Sense::at_most, 1.2};
  return figure;
}

Figure overhead(Effort effort, std::int64_t tokens) {
  const CharTransformer::Shape shape =
      effort == Effort::quick ? CharTransformer::Shape{1, 64, 128} : CharTransformer::Shape{6, 512, 128};
  const int rounds = effort == Effort::quick ? 2 : 8;
  Training training(shape, {tokens / shape.context, shape.context}, Training::Optimizer::adamw);
  CollectingRig rig(kActivations, {training.model(), training.optimizer(), [&] { training.backward(); }});
  const auto added = rig.measure(rounds, [] {});
  const double share = rig.own_share();
  rig.check(static_cast<std::size_t>(rounds));
  const Range idle = range_of(added.idle);
  std::vector<double> differences;
  for (const double seconds : added.seconds) differences.push_back(seconds / idle.median);
  Figure figure;
  figure.name = "activations_overhead_" + std::to_string(tokens);
  figure.value = share;
  figure.unit = "of a step";
  figure.goal = Goal{Goal::Sense::at_most, 0.10};
  figure.how =
      "the share of the training thread's time that this takes in a step of gradmon-train --layers 6 --width "
      "512 --context " +
      std::to_string(shape.context) + " --batch " + std::to_string(tokens / shape.context) + " (" +
      text_of(idle.median * 1000) +
      " ms) on two threads, by the monitor's own meter; by the whole step and the two steps beside it, with "
      "the machine's noise: minimum, median and maximum of " +
      std::to_string(rounds) + ": " + text_of(range_of(differences)) +
      (tokens == 512 ? " (msprobe adds 2.14)" : "");
  return figure;
}

std::vector<Figure> measure(Effort effort) {
  const int before = at::get_num_threads();
  at::set_num_threads(kThreads);
  std::vector<Figure> figures{against_read(effort), overhead(effort, 2048), overhead(effort, 512)};
  at::set_num_threads(before);
  if (effort == Effort::quick) {
    for (Figure& figure : figures) figure.how += "; quick: of a model far smaller than that";
  }
  return figures;
}

}  // namespace

Bench activation_cost() {
  return {{"activations_vs_read", "activations_overhead_2048", "activations_overhead_512"}, measure};
}

}  // namespace gradmon
