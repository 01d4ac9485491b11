// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/gradient_hooks.h"

#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include <future>
#include <thread>

#include "tests/hooks/fake_stream.h"
#include "tests/hooks/tiny_model.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

HookSettings each_micro_batch() {
  HookSettings settings;
  settings.gradients = true;
  settings.per_micro_batch = true;
  return settings;
}

HookSettings with_grad_acc_steps(int micro_batches) {
  HookSettings settings;
  settings.gradients = true;
  settings.grad_acc_steps = micro_batches;
  return settings;
}

// Multiplies by a parameter, and again in the backward, as reentrant checkpointing does. The nested pass
// delivers the parameter's gradient; the outer pass delivers an undefined one.
struct Checkpointed : torch::autograd::Function<Checkpointed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight) {
    context->saved_data["input"] = input.detach();
    context->saved_data["weight"] = weight;
    return input * weight;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const c10::AutoGradMode with_gradients(true);
    const at::Tensor input = context->saved_data["input"].toTensor().detach().requires_grad_();
    (input * context->saved_data["weight"].toTensor()).backward(gradients[0]);
    return {input.grad(), at::Tensor()};
  }
};

at::Tensor checkpointed(const at::Tensor& input, const at::Tensor& weight) {
  return Checkpointed::apply(input, weight);
}

struct Row {
  std::string target;
  int micro_step;
  double norm;
};

std::vector<Row> rows_of(const FakeStream& stream) {
  std::vector<Row> rows;
  for (const Record& record : stream.records) {
    if (record.kind != Kind::grad_unreduced) continue;
    rows.push_back(
        {stream.text(record.target), record.micro_step, record.values[static_cast<std::size_t>(Op::norm)]});
  }
  return rows;
}

TEST_CASE("each micro batch has the row of its own gradient") {
  for (const bool drop : {true, false}) {
    TinyModel model;
    FakeStream stream;
    HookSet hooks(each_micro_batch(), {model.parameters, {}}, stream);
    model.backward(3);
    drop ? model.drop_grad() : model.zero_grad();
    collect_update(hooks, 1, [&] {
      for (const double scale : {1.0, 2.0, 0.5}) model.backward(scale);
    });

    const auto rows = rows_of(stream);
    REQUIRE(rows.size() == 12);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      TinyModel alone;
      alone.backward(std::vector<double>{1.0, 2.0, 0.5}[i / 4]);
      CHECK(rows[i].micro_step == static_cast<int>(i / 4));
      for (const WatchedParameter& parameter : alone.parameters) {
        if ("0:" + parameter.name == rows[i].target)
          CHECK(near(rows[i].norm, norm_of(parameter.tensor->grad())));
      }
    }
    CHECK(near(stream.norm(Kind::grad_reduced, "0:fc1.weight"), norm_of(model[0].grad())));
  }
}

TEST_CASE_METHOD(HookedModel<each_micro_batch>,
                 "a micro batch also counts for the parameters that it leaves out") {
  for (std::int64_t step = 1; step <= 2; ++step) {
    stream.records.clear();
    hooks.begin_step({step}, kInCollected);
    model[3].sum().backward();
    (model[1] * 2).sum().backward();
    (model[3] * 4).sum().backward();
    hooks.end_step();
    const auto rows = rows_of(stream);
    REQUIRE(rows.size() == 3);
    CHECK((rows[0].target == "0:fc2.bias" && rows[0].micro_step == 0 && rows[0].norm == 2));
    CHECK((rows[1].target == "0:fc1.bias" && rows[1].micro_step == 1 && rows[1].norm == 8));
    CHECK((rows[2].target == "0:fc2.bias" && rows[2].micro_step == 2 && rows[2].norm == 8));
  }
}

TEST_CASE_METHOD(TinyRun,
                 "a gradient changed between micro batches has no row and grad_acc_steps stays in effect") {
  HookSet hooks(with_grad_acc_steps(2), {model.parameters, {}}, stream);
  for (std::int64_t step = 1; step <= 2; ++step) {
    stream.records.clear();
    model.drop_grad();
    hooks.begin_step({step}, kInCollected);
    model[3].sum().backward();
    model[3].mutable_grad().mul_(2);
    (model[1] * 2).sum().backward();
    hooks.end_step();
    CHECK(stream.targets(Kind::grad_unreduced) == std::vector<std::string>{"0:fc1.bias"});
    CHECK(hooks.not_applicable() == static_cast<std::uint64_t>(step));
  }
}

TEST_CASE_METHOD(HookedModel<each_micro_batch>,
                 "nested passes belong to the outer pass's micro batch even if it delivers nothing itself") {
  for (std::int64_t step = 1; step <= 3; ++step) {
    stream.records.clear();
    hooks.begin_step({step}, kInCollected);
    for (int i = 0; i < 2; ++i) {
      const at::Tensor input = at::ones({16}).requires_grad_();
      const at::Tensor once = checkpointed(input, model[1]);
      checkpointed(once.slice(0, 0, 4), model[3]).sum().backward();
    }
    hooks.end_step();
    const auto rows = rows_of(stream);
    REQUIRE(rows.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(rows[i].micro_step == static_cast<int>(i / 2));
      CHECK(rows[i].target == (i % 2 == 0 ? "0:fc2.bias" : "0:fc1.bias"));
    }
  }
}

TEST_CASE_METHOD(HookedModel<each_micro_batch>,
                 "a parameter delivered twice in a micro batch has one row of the accumulated gradient") {
  hooks.begin_step({1}, kInCollected);
  std::vector<double> accumulated;
  for (int i = 0; i < 2; ++i) {
    const at::Tensor input = at::ones({4}).requires_grad_();
    (checkpointed(input, model[3]) * model[3]).sum().backward();
    accumulated.push_back(norm_of(model[3].grad()));
  }
  hooks.end_step();
  const auto rows = rows_of(stream);
  REQUIRE(rows.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(rows[i].micro_step == static_cast<int>(i));
    CHECK(near(rows[i].norm, accumulated[i]));
  }
}

TEST_CASE_METHOD(HookedModel<each_micro_batch>, "a backward that throws ends its micro batch") {
  hooks.begin_step({1}, kInCollected);
  const at::Tensor product = model[1] * 2;
  product.register_hook([](const at::Tensor& gradient) -> at::Tensor {
    if (gradient.defined()) throw std::domain_error("mine");
    return gradient;
  });
  // The bias's gradient is delivered before the hook of the product throws.
  const at::Tensor loss = (product.slice(0, 0, 4) * model[3]).sum();
  REQUIRE_THROWS(loss.backward());
  model[3].sum().backward();
  hooks.end_step();
  const auto rows = rows_of(stream);
  REQUIRE(rows.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(rows[i].target == "0:fc2.bias");
    CHECK(rows[i].micro_step == static_cast<int>(i));
  }
}

TEST_CASE_METHOD(TinyRun, "if grad_acc_steps is known a gradient is read in the last micro batch") {
  TinyModel alone;
  HookSet hooks(with_grad_acc_steps(3), {model.parameters, {}}, stream);
  for (std::int64_t step = 1; step <= 2; ++step) {
    stream.records.clear();
    alone.drop_grad();
    model.drop_grad();
    hooks.begin_step({step}, kInCollected);
    for (const double scale : {1.0, 2.0, 0.5}) {
      alone.backward(scale);
      model.backward(scale);
    }
    hooks.before_update({});
    hooks.end_step();
    CHECK(stream.records.size() == 8);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::string target = "0:" + model.parameters[i].name;
      CHECK(near(stream.norm(Kind::grad_unreduced, target), norm_of(alone[i].grad())));
    }
  }
}

TEST_CASE_METHOD(TinyRun, "a parameter that the last micro batch leaves out has the row of an earlier one") {
  HookSet hooks(with_grad_acc_steps(3), {model.parameters, {}}, stream);
  hooks.begin_step({1}, kInCollected);
  (model[1] * 2).sum().backward();
  (model[3] + model[1].slice(0, 0, 4)).sum().backward();
  (model[3] * 4).sum().backward();
  hooks.before_update({});
  hooks.end_step();
  CHECK(stream.targets(Kind::grad_unreduced) == std::vector<std::string>{"0:fc1.bias", "0:fc2.bias"});
  CHECK(near(stream.norm(Kind::grad_unreduced, "0:fc1.bias"), norm_of(model[1].grad())));
  CHECK(stream.norm(Kind::grad_unreduced, "0:fc2.bias") == 10);
}

TEST_CASE_METHOD(
    TinyRun,
    "a step with fewer micro batches than grad_acc_steps has no wrong row and later steps are read") {
  HookSet hooks(with_grad_acc_steps(3), {model.parameters, {}}, stream);
  for (std::int64_t step = 1; step <= 2; ++step) {
    stream.records.clear();
    model.drop_grad();
    hooks.begin_step({step}, kInCollected);
    model[3].sum().backward();
    model[3].sum().backward();
    model[3].mutable_grad().mul_(0.5);  // reduced
    hooks.before_update({});
    hooks.end_step();
    CHECK(stream.targets(Kind::grad_unreduced).size() == static_cast<std::size_t>(step - 1));
    CHECK(stream.norm(Kind::grad_reduced, "0:fc2.bias") == 2);
  }
  CHECK(stream.norm(Kind::grad_unreduced, "0:fc2.bias") == 4);
}

TEST_CASE("a pass in progress when a step begins belongs to the previous step") {
  const auto micro_batches = std::make_shared<MicroBatches>();
  std::promise<void> entered, begun;
  std::thread lingering([&] {
    const at::Tensor tensor = at::ones({1}).requires_grad_().clone();
    tensor.register_hook([&](const at::Tensor&) {
      micro_batches->enter();
      entered.set_value();
      begun.get_future().wait();
    });
    tensor.sum().backward();
  });
  entered.get_future().wait();
  CHECK(micro_batches->count() == 1);
  micro_batches->begin_step();
  CHECK(micro_batches->count() == 0);
  begun.set_value();
  lingering.join();
  const at::Tensor tensor = at::ones({1}).requires_grad_().clone();
  tensor.register_hook([&](const at::Tensor&) {
    const MicroBatches::Place place = micro_batches->enter();
    CHECK(place.index == 0);
    CHECK(place.begins);
  });
  tensor.sum().backward();
  CHECK(micro_batches->count() == 1);
}

}  // namespace
}  // namespace gradmon
