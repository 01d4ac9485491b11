// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <torch/optim/adamw.h>

#include <algorithm>

#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/collecting_rig.h"
#include "tests/benchmarks/measure/one_thread.h"
#include "tests/benchmarks/measure/range.h"
#include "tests/benchmarks/training.h"

namespace gradmon {
namespace {

constexpr int kThreads = 2;
constexpr const char* kGradients = R"("wg_distribution": true)";
constexpr const char* kState =
    R"("wg_distribution": true, "param_distribution": true, "mv_distribution": true)";

// Makes one real step, which creates the moments, and no further step, so that the
// optimizer's time does not hide the added time.
class RestingAdamW : public torch::optim::AdamW {
 public:
  using AdamW::AdamW;
  at::Tensor step(LossClosure closure = nullptr) override {
    return rested_++ == 0 ? AdamW::step(std::move(closure)) : at::Tensor();
  }

 private:
  int rested_ = 0;
};

// A model's parameters, with a loss whose backward costs hardly more than writing the
// gradients.
class CheapTraining {
 public:
  explicit CheapTraining(const std::shared_ptr<torch::nn::Module>& model)
      : model_(model), optimizer_(model_->parameters(), torch::optim::AdamWOptions(1e-3)) {
    for (const at::Tensor& parameter : model_->parameters())
      factors_.push_back(at::full_like(parameter, 1e-3).detach());
  }

  CollectingRig::Step step() {
    return {*model_, optimizer_, [this] { backward(); }};
  }
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : model_->parameters()) all.push_back(parameter.grad());
    return all;
  }
  std::vector<at::Tensor> parameters() const { return model_->parameters(); }
  // As large as the moments, and as cold in the cache.
  const std::vector<at::Tensor>& factors() const { return factors_; }

 private:
  void backward() {
    optimizer_.zero_grad();
    at::Tensor loss;
    const std::vector<at::Tensor> parameters = model_->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor part = (parameters[i] * factors_[i]).sum();
      loss = loss.defined() ? loss + part : part;
    }
    loss.backward();
  }

  const std::shared_ptr<torch::nn::Module> model_;
  RestingAdamW optimizer_;
  std::vector<at::Tensor> factors_;
};

struct Cost {
  Range share;    // relative to the read
  Range seconds;  // added to a step
  Range read;
};

Cost cost_of(const char* kinds, std::size_t rows_per_parameter, const CharTransformer::Shape& shape,
             int rounds) {
  CheapTraining training(std::make_shared<CharTransformer>(shape));
  CollectingRig rig(kinds, training.step());
  const auto added = rig.measure(rounds, [&] {
    for (int twice = 0; twice < 2; ++twice) {
      read_all(training.gradients());
      if (rows_per_parameter < 6) continue;
      read_all(training.parameters());
      read_all(training.factors());
    }
  });
  rig.check(rows_per_parameter * training.parameters().size() * static_cast<std::size_t>(rounds));
  const Range read = range_of(added.reads);
  std::vector<double> shares;
  for (const double seconds : added.seconds) shares.push_back(seconds / read.median);
  return {range_of(shares), range_of(added.seconds), read};
}

Figure against_read(const char* name, const char* what, const Cost& cost, int rounds) {
  Figure figure;
  figure.name = name;
  figure.value = cost.share.median;
  figure.unit = "times the read";
  figure.goal = Goal{Goal::Sense::at_most, 1.5};
  figure.how = std::string("what collecting ") + what +
               ", six ops, adds to a step of a model of 20 million parameters (" +
               text_of(cost.seconds.median * 1000) + " ms; its backward and optimizer made cheap), over a " +
               "plain read of those bytes (" + text_of(cost.read.median * 1000) +
               " ms), on two threads, in turns; minimum, median and maximum of " + std::to_string(rounds) +
               ": " + text_of(cost.share);
  return figure;
}

Range step_time(const CharTransformer::Shape& shape, std::int64_t tokens, int rounds) {
  Training training(shape, {tokens / shape.context, shape.context}, Training::Optimizer::adamw);
  training.step(nullptr);
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) seconds.push_back(seconds_of([&] { training.step(nullptr); }));
  return range_of(seconds);
}

Figure of_a_step(const std::string& name, std::int64_t tokens, double goal, const Cost& cost,
                 const Range& step, const CharTransformer::Shape& shape) {
  Figure figure;
  figure.name = name + "_" + std::to_string(tokens);
  figure.value = cost.seconds.median / step.median;
  figure.unit = "of a step";
  figure.goal = Goal{Goal::Sense::at_most, goal};
  figure.how =
      "the same milliseconds over those of a step of gradmon-train --layers 6 --width 512 --context " +
      std::to_string(shape.context) + " --batch " + std::to_string(tokens / shape.context) +
      " on two threads without gradmon; minimum, median and maximum of that: " +
      text_of({step.minimum * 1000, step.median * 1000, step.maximum * 1000}) + " ms";
  return figure;
}

// Many parameters of four elements: the fixed cost of a record.
std::vector<Figure> per_tensor(Effort effort) {
  const OneThread pinned;
  const int parameters = effort == Effort::quick ? 500 : 10000;
  const int rounds = effort == Effort::quick ? 2 : 30;
  auto model = std::make_shared<torch::nn::Module>();
  for (int i = 0; i < parameters; ++i) model->register_parameter("p" + std::to_string(i), at::full({4}, 1.0));
  RestingAdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
  const auto backward = [&] {
    optimizer.zero_grad();
    at::cat(model->parameters()).sum().backward();
  };
  CollectingRig rig(kGradients, {*model, optimizer, backward}, TimeBase::thread);
  const auto added = rig.measure(rounds, [] {});
  const std::size_t records = 2 * static_cast<std::size_t>(parameters);
  rig.check(records * static_cast<std::size_t>(rounds));
  std::vector<double> nanoseconds;
  for (const double seconds : added.seconds)
    nanoseconds.push_back(seconds * 1e9 / static_cast<double>(records));
  Figure figure;
  figure.name = "reading_ns";
  figure.value = range_of(nanoseconds).median;
  figure.unit = "ns";
  figure.goal = Goal{Goal::Sense::at_most, 300};
  figure.how =
      "processor time that each record costs the training thread however small its tensor: gradients of " +
      std::to_string(parameters) +
      " parameters of four elements, both kinds; minimum, median and maximum of " + std::to_string(rounds) +
      ": " + text_of(range_of(nanoseconds));
  return {figure};
}

std::vector<Figure> measure(Effort effort) {
  const int before = at::get_num_threads();
  at::set_num_threads(kThreads);
  const bool quick = effort == Effort::quick;
  const CharTransformer::Shape shape =
      quick ? CharTransformer::Shape{1, 64, 128} : CharTransformer::Shape{6, 512, 128};
  const int rounds = quick ? 2 : 40;
  const Cost gradients = cost_of(kGradients, 2, shape, rounds);
  const Cost state = cost_of(kState, 6, shape, rounds);
  const Range step_2048 = step_time(shape, 2048, quick ? 1 : 6);
  const Range step_512 = step_time(shape, 512, quick ? 1 : 12);
  std::vector<Figure> figures{
      against_read("grads_vs_read", "all gradients before and after reduction", gradients, rounds),
      of_a_step("grads_overhead", 2048, 0.01, gradients, step_2048, shape),
      of_a_step("grads_overhead", 512, 0.03, gradients, step_512, shape),
      against_read("state_vs_read", "all gradients, weights before and after, and both moments", state,
                   rounds),
      of_a_step("state_overhead", 2048, 0.10, state, step_2048, shape),
      of_a_step("state_overhead", 512, 0.10, state, step_512, shape)};
  figures[2].how += " (msprobe adds 0.46)";
  figures[5].how += " (msprobe adds 1.50)";
  at::set_num_threads(before);
  if (quick) {
    for (Figure& figure : figures) figure.how += "; quick: of a model far smaller than that";
  }
  return figures;
}

}  // namespace

Bench parameter_cost() {
  return {{"grads_vs_read", "grads_overhead_2048", "grads_overhead_512", "state_vs_read",
           "state_overhead_2048", "state_overhead_512"},
          measure};
}

Bench reading_cost() { return {{"reading_ns"}, per_tensor}; }

}  // namespace gradmon
