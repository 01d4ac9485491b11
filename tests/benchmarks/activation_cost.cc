// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <gradmon/observe.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <array>
#include <optional>

#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/collecting_rig.h"
#include "tests/benchmarks/measure/range.h"
#include "tests/benchmarks/training.h"

namespace gradmon {
namespace {

constexpr int kThreads = 2;
constexpr const char* kActivations = R"("xy_distribution": true, "all_xy": true)";
constexpr int kLinks = 24;

// The default, and the config's reuse_readings.
enum class Readings { each_time, reused };

std::string keys_of(Readings readings) {
  return kActivations + std::string(readings == Readings::reused ? R"(, "reuse_readings": true)" : "");
}

std::string named(const char* begin, Readings readings, const char* end) {
  return begin + std::string(readings == Readings::reused ? "_reused" : "") + end;
}

// Where the chain's tensors lie. In the ordinary case glibc 2.36 puts each tensor of a collected step into
// cold memory, because small objects that live on take the slivers beside its aligned pieces, and the step's
// own computation takes twice as long: more than the readings do. In three places in turns, as with other
// allocators, what collecting adds is its own work.
enum class Places { ordinary, three };

// A new tensor in the next of the three places, with unknown content.
at::Tensor in_next_place(const at::Tensor& like) {
  static std::array<at::Tensor, 3> places;
  static std::size_t next = 0;
  at::Tensor& place = places[next++ % places.size()];
  if (!place.defined() || place.nbytes() != like.nbytes()) place = at::empty_like(like);
  return at::from_blob(place.data_ptr(), like.sizes());
}

struct HalveInPlaces : torch::autograd::Function<HalveInPlaces> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    at::Tensor half = in_next_place(x);
    return at::mul_out(half, x, at::scalar_tensor(0.5));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {forward(context, gradients.front())};
  }
};

// Costs hardly more than writing its output.
struct Halve : torch::nn::Module {
  explicit Halve(Places where) : places(where) {}
  at::Tensor forward(const at::Tensor& x) const {
    return places == Places::three ? HalveInPlaces::apply(x) : x * 0.5;
  }

  Places places;
};

// A chain of modules with large activations and little computation.
struct CheapChain : torch::nn::Module {
  CheapChain(std::int64_t rows, Places places)
      : first(register_parameter("first", at::full({rows, 2048}, 0.25))) {
    for (int i = 0; i < kLinks; ++i)
      links.push_back(register_module("link" + std::to_string(i), std::make_shared<Halve>(places)));
  }
  at::Tensor forward() {
    at::Tensor x = first * 1.0;
    for (const auto& link : links) x = observe(*link)(x);
    return x;
  }

  at::Tensor first;
  std::vector<std::shared_ptr<Halve>> links;
};

Figure against_read(Effort effort, Places places, Readings readings) {
  const int rounds = effort == Effort::quick ? 2 : 120;
  CheapChain chain(effort == Effort::quick ? 8 : 512, places);
  torch::optim::SGD optimizer(chain.parameters(), torch::optim::SGDOptions(0));
  CollectingRig rig(keys_of(readings), {chain, optimizer, [&] {
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
  const bool ordinary = places == Places::ordinary;
  Figure figure = share_of_read(
      named("activations", readings, ordinary ? "_in_malloc_vs_read" : "_vs_read"), added,
      std::string(readings == Readings::reused ? "with reuse_readings, " : "") +
          std::string("all inputs, outputs and their gradients of 24 modules that hand on 4 MiB each, in ") +
          (ordinary ? "malloc's memory" : "three places in turns"),
      "the " + std::to_string(2 * (kLinks + 1)) + " tensors there are");
  const double most = readings == Readings::reused ? 1.2 : 2.4;  // Nearly all are seen twice.
  figure.goal = ordinary ? std::nullopt : std::optional(Goal{Goal::Sense::at_most, most});
  return figure;
}

Figure overhead(Effort effort, std::int64_t tokens, Readings readings) {
  const CharTransformer::Shape shape =
      effort == Effort::quick ? CharTransformer::Shape{1, 64, 128} : CharTransformer::Shape{6, 512, 128};
  const int rounds = effort == Effort::quick ? 2 : 8;
  Training training(shape, {tokens / shape.context, shape.context}, Training::Optimizer::adamw);
  CollectingRig rig(keys_of(readings),
                    {training.model(), training.optimizer(), [&] { training.backward(); }});
  const auto added = rig.measure(rounds, [] {});
  const double share = rig.own_share();
  rig.check(static_cast<std::size_t>(rounds));
  const Range idle = range_of(added.idle);
  std::vector<double> differences;
  for (const double seconds : added.seconds) differences.push_back(seconds / idle.median);
  Figure figure;
  figure.name = named("activations", readings, "_overhead_") + std::to_string(tokens);
  figure.value = share;
  figure.unit = "of a step";
  figure.goal = Goal{Goal::Sense::at_most, 0.10};
  figure.how =
      std::string(readings == Readings::reused ? "with reuse_readings, " : "") +
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
  std::vector<Figure> figures{against_read(effort, Places::three, Readings::each_time),
                              against_read(effort, Places::three, Readings::reused),
                              against_read(effort, Places::ordinary, Readings::each_time),
                              overhead(effort, 2048, Readings::each_time),
                              overhead(effort, 2048, Readings::reused),
                              overhead(effort, 512, Readings::each_time)};
  at::set_num_threads(before);
  if (effort == Effort::quick) {
    for (Figure& figure : figures) figure.how += "; quick: of a model far smaller than that";
  }
  return figures;
}

}  // namespace

Bench activation_cost() {
  return {{"activations_vs_read", "activations_reused_vs_read", "activations_in_malloc_vs_read",
           "activations_overhead_2048", "activations_reused_overhead_2048", "activations_overhead_512"},
          measure};
}

}  // namespace gradmon
