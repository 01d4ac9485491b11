// SPDX-License-Identifier: Apache-2.0
// The gradient of a module's input: the part that comes through the module.
#include <ATen/ops/sin.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>

#include "control/debian_version.h"
#include "tests/hooks/activation_records.h"
#include "tests/hooks/observed_model.h"
#include "tests/hooks/tiny_model.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// A pre-norm block, with a residual connection around it.
struct Residual : torch::nn::Module {
  torch::nn::Linear norm{register_module("norm", torch::nn::Linear(4, 4))};
  torch::nn::Linear body{register_module("body", torch::nn::Linear(4, 4))};
  at::Tensor forward(const at::Tensor& x) { return x + observe(*body)(observe(*norm)(x)).tanh(); }
};

TEST_CASE("the gradient of an input is the part through the module and not through a residual") {
  Residual block;
  struct Model : torch::nn::Module {
    std::shared_ptr<Residual> block;
  } model;
  model.block = model.register_module("block", std::shared_ptr<Residual>(&block, [](auto*) {}));
  FakeStream stream;
  HookSet hooks(activations(), watched(model), stream);
  hooks.begin_step({1}, HookSet::Collect::yes);
  const at::Tensor leaf = observed_input().requires_grad_();
  const at::Tensor x = leaf * 3;
  const at::Tensor y = observe(block)(x);
  (y.pow(2).sum() + x.sum()).backward();
  hooks.end_step();
  // Computed by plain torch, with a leaf of its own for each branch.
  const at::Tensor around = x.detach().clone().requires_grad_(), within = x.detach().clone().requires_grad_();
  const at::Tensor out = around + block.body->forward(block.norm->forward(within)).tanh();
  out.pow(2).sum().backward();
  CHECK(near(value(stream, Kind::actv_grad, "block.norm.input", Op::norm), norm_of(within.grad())));
  CHECK(
      near(value(stream, Kind::actv_grad, "block.input", Op::norm), norm_of(around.grad() + within.grad())));
  CHECK(near(value(stream, Kind::actv_grad, "block.input", Op::min),
             (around.grad() + within.grad()).min().item<double>()));
  CHECK(rows(stream, Kind::actv_grad) == Lines{"block.output/0", "block.body.output/0", "block.body.input/0",
                                               "block.norm.output/0", "block.norm.input/0", "block.input/0"});
}

TEST_CASE("an input used several times within its module has the sum as its gradient in each pass") {
  struct Twice : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return (x * 2).sum() + (x.pow(2) + x.sin()).sum(); }
  } model;
  FakeStream stream;
  HookSet hooks(activations(), watched(model), stream);
  hooks.begin_step({1}, HookSet::Collect::yes);
  const at::Tensor leaf = observed_input().requires_grad_();
  for (const bool of_a_node : {false, true}) {
    const at::Tensor x = of_a_node ? leaf * 1 : leaf;
    const at::Tensor y = observe(model)(x);
    torch::autograd::backward({y}, {}, true);
    (y * 3).backward();
  }
  hooks.end_step();
  CHECK(!hooks.failure());
  CHECK(rows(stream, Kind::actv_grad) ==
        Lines{"model.output/0", "model.input/0", "model.output/1", "model.input/1"});
  const at::Tensor x = leaf.detach();
  for (const int forward : {0, 1})
    CHECK(near(value(stream, Kind::actv_grad, "model.input", Op::norm, forward),
               norm_of((2 + 2 * x + x.cos()) * 3)));
}

TEST_CASE("a backward that does not pass through a module gives its input no gradient row") {
  ObservedModel model;
  FakeStream stream;
  HookSet hooks(activations(), watched(model), stream);
  hooks.begin_step({1}, HookSet::Collect::yes);
  const at::Tensor x = observed_input().requires_grad_() * 2;
  const at::Tensor y = observe(model)(x);
  x.sum().backward();
  hooks.end_step();
  CHECK(rows(stream, Kind::actv_grad).empty());
}

TEST_CASE("an input whose part of the gradient cannot be separated is counted as not applicable") {
  struct Identity : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x; }
  };
  struct Product : torch::nn::Module {
    at::Tensor forward(const at::Tensor& a, const at::Tensor& b) { return a * b; }
  };
  Identity same;
  Product product;
  torch::nn::Module root;
  root.register_module("same", std::shared_ptr<torch::nn::Module>(&same, [](auto*) {}));
  root.register_module("product", std::shared_ptr<torch::nn::Module>(&product, [](auto*) {}));
  FakeStream stream;
  HookSet hooks(activations(), watched(root), stream);
  hooks.begin_step({1}, HookSet::Collect::yes);
  const at::Tensor x = observed_input().requires_grad_() * 2;
  observe(product)(observe(same)(x), x).sum().backward();
  hooks.end_step();
  CHECK(rows(stream, Kind::actv_grad) == Lines{"product.output/0", "same.output/0"});
  CHECK(hooks.not_applicable() == 3);  // same.input, product.input_0 and _1
}

}  // namespace
}  // namespace gradmon
