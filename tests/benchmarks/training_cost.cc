// SPDX-License-Identifier: Apache-2.0
// The cost of a monitor in a training: while it is idle, and while it collects gradients, state, activations
// and the outputs of collectives.
#include <torch/types.h>  // Keep first: clip_grad.h needs it and does not say so.

#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <gradmon/observe.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <array>
#include <chrono>
#include <optional>
#include <stdexcept>

#include "tests/benchmarks/collecting_rig.h"
#include "tests/support/gradient_average.h"
#include "tests/support/training_step.h"

namespace gradmon {
namespace {

using Shape = CharTransformer::Shape;

constexpr int kThreads = 2;
constexpr const char* kGradients = R"("wg_distribution": true)";
constexpr const char* kState =
    R"("wg_distribution": true, "param_distribution": true, "mv_distribution": true)";
constexpr const char* kNever = "never turned on";  // the reason of an idle monitor

Shape shape_of(Effort effort) { return pick(effort, Shape{1, 64, 128}, Shape{6, 512, 128}); }

// The training of gradmon-train, one rank of it, step by step.
class Training {
 public:
  Training(const Shape& shape, std::int64_t batch)
      : model_(shape),
        batches_(default_text(), {batch, shape.context}, 1, 0),
        optimizer_(model_.parameters(), torch::optim::AdamWOptions(3e-3)) {
    at::globalContext().setDeterministicAlgorithms(true, false);
  }

  CharTransformer& model() { return model_; }
  torch::optim::Optimizer& optimizer() { return optimizer_; }
  void backward() {  // the part of a step before the optimizer
    const TextBatch batch = batches_.next();
    optimizer_.zero_grad();
    model_.loss(batch.inputs, batch.targets).backward();
    torch::nn::utils::clip_grad_norm_(model_.parameters(), 1.0);
  }
  void step(Monitor* monitor) {  // null: there is no monitor
    backward();
    if (monitor == nullptr) {
      optimizer_.step();
    } else {
      monitor->step(optimizer_);
    }
  }

 private:
  CharTransformer model_;
  TextBatches batches_;
  torch::optim::AdamW optimizer_;
};

std::string options_of(const Shape& shape, std::int64_t tokens) {
  return "a step of gradmon-train --layers 6 --width 512 --context " + std::to_string(shape.context) +
         " --batch " + std::to_string(tokens / shape.context);
}

Figure share_of_read(std::string name, const CollectingRig::Added& added, double goal,
                     const std::string& adding, const std::string& of) {
  const double read = median_of(added.reads);
  return median_figure(std::move(name), scaled(added.seconds, 1 / read), "times the read", at_most(goal),
                       "what collecting " + adding + ", six ops, adds (" +
                           text_of(median_of(added.seconds) * 1000) + " ms), over a plain read of " + of +
                           " (" + text_of(read * 1000) + " ms) on two threads, in turns");
}

// --- A monitor that is idle.

void until_steps_are_counted(Monitor& monitor) {
  const auto step = [&monitor] {
    monitor.step();
    const Status status = monitor.status();
    return status.ranks.empty() ? -1 : status.ranks.front().step;
  };
  const auto is_later = [&, before = step()] { return step() > before; };
  if (!eventually(is_later, std::chrono::seconds(20)))
    throw std::runtime_error("the monitor did not take part");
}

// The nanoseconds of processor time per step of a job, in each repetition.
std::vector<double> step_ns(const std::string& config, const std::string& state, const std::string& reason,
                            Effort effort) {
  const ScratchJob job(config);
  torch::nn::Linear model(4, 3);
  Monitor monitor(job.config(), job.options());
  monitor.watch(*model);
  step_until(monitor, state, reason);
  const int steps = pick(effort, 1'000'000, 20'000'000);
  std::vector<double> nanoseconds;
  for (int i = 0; i < pick(effort, 5, 30); ++i) {
    const double begin = seconds_now(TimeBase::thread);
    for (int step = 0; step < steps; ++step) monitor.step();
    nanoseconds.push_back((seconds_now(TimeBase::thread) - begin) * 1e9 / steps);
  }
  until_steps_are_counted(monitor);
  return nanoseconds;
}

std::vector<Figure> idle_step(Effort effort) {
  const TorchThreads pinned(1, Processors::one);
  const auto off = step_ns(R"({"dynamic_on": false})", "off", kNever, effort);
  const auto on = step_ns(R"({"dynamic_on": true, "collect_times": 1000000, "step_interval": 1000000000, )" +
                              std::string(kGradients) + "}",
                          "on", "", effort);
  return {median_figure("idle_step_ns", off, "ns", at_most(5),
                        "Monitor::step() in dynamic mode, off, in a loop (msprobe: 6,700 to 12,400)"),
          {"on_step_extra_ns", median_of(on) - median_of(off), "ns", at_most(30),
           "what monitoring adds to that while it is on, in a step that is not collected; the whole step: " +
               spread_of(on)}};
}

std::vector<Figure> idle_overhead(Effort effort) {
  const int steps = pick(effort, 10, 100);
  const TorchThreads one(1);
  Training training({2, 64, 32}, 4);
  const ScratchJob job(R"({"dynamic_on": false})");
  std::optional<Monitor> monitor;
  const auto run = [&] {
    for (int i = 0; i < steps; ++i) training.step(monitor ? &*monitor : nullptr);
  };
  const auto attach = [&] {
    if (monitor) return;
    monitor.emplace(job.config(), job.options());
    monitor->watch(training.model(), training.optimizer());
    step_until(*monitor, "off", kNever);
  };
  // The monitor is created and destroyed between the blocks of steps, outside the timed part.
  const Rounds done =
      interleave(pick(effort, 3, 40), TimeBase::wall, {{run, [&] { monitor.reset(); }}, {run, attach}});
  const std::vector<double> ratios = done.ratios(1, 0);
  const auto [low, high] = median_interval(ratios);
  Figure figure = median_figure(
      "idle_overhead", ratios, "times the step without gradmon", at_most(1),
      "blocks of " + std::to_string(steps) + " steps (" + text_of(median_of(done.seconds[0]) * 1000 / steps) +
          " ms) of gradmon-train's small model, with an idle monitor and with none, in turns; goal: not "
          "distinguishable; 95 % of the median: " +
          text_of(low) + " to " + text_of(high));
  figure.met = low <= 1 && high >= 1;
  return {figure};
}

// --- Gradients, weights and moments.

// Makes one real step, which creates the moments, and no further step, so that the
// optimizer's time does not hide the added time.
class RestingAdamW : public torch::optim::AdamW {
 public:
  explicit RestingAdamW(const torch::nn::Module& model)
      : AdamW(model.parameters(), torch::optim::AdamWOptions(1e-3)) {}
  at::Tensor step(LossClosure closure = nullptr) override {
    return rested_++ == 0 ? AdamW::step(std::move(closure)) : at::Tensor();
  }

 private:
  int rested_ = 0;
};

// Collects in a training of the model's parameters whose backward costs hardly more than writing the
// gradients.
CollectingRig::Added collect_from(torch::nn::Module& model, const char* kinds, std::size_t rows_per_parameter,
                                  int rounds) {
  RestingAdamW optimizer(model);
  const std::vector<at::Tensor> parameters = model.parameters();
  std::vector<at::Tensor> factors;  // as large as the moments, and as cold in the cache
  for (const at::Tensor& parameter : parameters) factors.push_back(at::full_like(parameter, 1e-3).detach());
  const auto backward = [&] {
    optimizer.zero_grad();
    at::Tensor loss;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor part = (parameters[i] * factors[i]).sum();
      loss = loss.defined() ? loss + part : part;
    }
    loss.backward();
  };
  CollectingRig rig(kinds, {model, optimizer, backward});
  auto added = rig.measure(rounds, [&] {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
    for (int twice = 0; twice < 2; ++twice) {
      read_all(gradients);
      if (rows_per_parameter < 6) continue;
      read_all(parameters);
      read_all(factors);
    }
  });
  rig.check(rows_per_parameter * parameters.size() * static_cast<std::size_t>(rounds));
  return added;
}

std::vector<double> step_seconds(const Shape& shape, std::int64_t tokens, int rounds) {
  Training training(shape, tokens / shape.context);
  training.step(nullptr);
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) seconds.push_back(seconds_of([&] { training.step(nullptr); }));
  return seconds;
}

std::vector<Figure> parameter_cost(Effort effort) {
  const TorchThreads two(kThreads);
  const Shape shape = shape_of(effort);
  const std::vector<double> step_2048 = step_seconds(shape, 2048, pick(effort, 1, 6));
  const std::vector<double> step_512 = step_seconds(shape, 512, pick(effort, 1, 12));
  std::vector<Figure> figures;
  const auto measure = [&](const std::string& name, const std::string& adding, const char* kinds,
                           std::size_t rows, double goal_2048, double goal_512, const char* of_msprobe) {
    CharTransformer model(shape);
    const auto added = collect_from(model, kinds, rows, pick(effort, 2, 40));
    figures.push_back(share_of_read(name + "_vs_read", added, 1.5,
                                    adding +
                                        " in a step of 20 million parameters, whose backward and optimizer "
                                        "are made cheap",
                                    "those bytes"));
    const auto of_a_step = [&](std::int64_t tokens, const std::vector<double>& step, double goal,
                               const std::string& more) {
      figures.push_back(
          {name + "_overhead_" + std::to_string(tokens), median_of(added.seconds) / median_of(step),
           "of a step", at_most(goal),
           "the same milliseconds over those of " + options_of(shape, tokens) +
               " on two threads without gradmon; of that, in ms: " + spread_of(scaled(step, 1000)) + more});
    };
    of_a_step(2048, step_2048, goal_2048, "");
    of_a_step(512, step_512, goal_512, of_msprobe);
  };
  measure("grads", "all gradients before and after reduction", kGradients, 2, 0.01, 0.03,
          " (msprobe adds 0.46)");
  measure("state", "all gradients, weights before and after, and both moments", kState, 6, 0.10, 0.10,
          " (msprobe adds 1.50)");
  return figures;
}

// Many parameters of four elements: the fixed cost of a record.
std::vector<Figure> reading_ns(Effort effort) {
  const TorchThreads pinned(1, Processors::one);
  const int parameters = pick(effort, 500, 10000);
  const int rounds = pick(effort, 2, 30);
  torch::nn::Module model;
  for (int i = 0; i < parameters; ++i) model.register_parameter("p" + std::to_string(i), at::full({4}, 1.0));
  RestingAdamW optimizer(model);
  const auto backward = [&] {
    optimizer.zero_grad();
    at::cat(model.parameters()).sum().backward();
  };
  CollectingRig rig(kGradients, {model, optimizer, backward}, TimeBase::thread);
  const auto added = rig.measure(rounds, [] {});
  rig.check(2 * static_cast<std::size_t>(parameters) * static_cast<std::size_t>(rounds));
  return {median_figure("reading_ns", scaled(added.seconds, 1e9 / (2.0 * parameters)), "ns", at_most(300),
                        "processor time that each record costs the training thread however small its tensor: "
                        "gradients of " +
                            std::to_string(parameters) + " parameters of four elements, both kinds")};
}

// --- Activations.

struct Readings {
  std::string name, keys, text;
  double most_reads;  // Nearly all activations are seen twice.
};
const Readings kEachTime{"activations_", R"("xy_distribution": true, "all_xy": true)", "", 2.4};
const Readings kReused{"activations_reused_", kEachTime.keys + R"(, "reuse_readings": true)",
                       "with reuse_readings, ", 1.2};

// A new tensor in the next of three places, with unknown content. glibc 2.36 puts each tensor of a collected
// step into cold memory, because small objects that live on take the slivers beside its aligned pieces, and
// the step's own computation takes twice as long: more than the readings do. In three places in turns, as
// with other allocators, what collecting adds is its own work.
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
  at::Tensor forward(const at::Tensor& x) const { return HalveInPlaces::apply(x); }
};

// A chain of modules with large activations and little computation.
struct CheapChain : torch::nn::Module {
  static constexpr int kLinks = 24;

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

Figure activations_vs_read(Effort effort, const Readings& readings) {
  const int rounds = pick(effort, 2, 120);
  CheapChain chain(pick(effort, 8, 512));
  torch::optim::SGD optimizer(chain.parameters(), torch::optim::SGDOptions(0));
  const auto backward = [&] {
    optimizer.zero_grad();
    observe(chain)().sum().backward();
  };
  CollectingRig rig(readings.keys, {chain, optimizer, backward});
  std::vector<at::Tensor> alike;  // one for each activation that is collected
  for (int i = 0; i <= CheapChain::kLinks; ++i) alike.push_back(at::full_like(chain.first, 0.5));
  const auto added = rig.measure(rounds, [&] {
    read_all(alike);
    read_all(alike);
  });
  rig.check(4 * CheapChain::kLinks * static_cast<std::size_t>(rounds));
  return share_of_read(
      readings.name + "vs_read", added, readings.most_reads,
      readings.text +
          "all inputs, outputs and their gradients of 24 modules that hand on 4 MiB each, in "
          "three places in turns",
      "the " + std::to_string(2 * (CheapChain::kLinks + 1)) + " tensors there are");
}

// The processor time that collecting adds to a step of the chain, in each round.
std::vector<double> added_to_chain(Effort effort, const std::string& keys) {
  const int rounds = pick(effort, 2, 60);
  CheapChain chain(pick(effort, 8, 512));
  torch::optim::SGD optimizer(chain.parameters(), torch::optim::SGDOptions(0));
  const auto backward = [&] {
    optimizer.zero_grad();
    observe(chain)().sum().backward();
  };
  CollectingRig rig(keys, {chain, optimizer, backward}, TimeBase::thread);
  const auto added = rig.measure(rounds, [] {});
  rig.check(4 * CheapChain::kLinks * static_cast<std::size_t>(rounds));
  return added.seconds;
}

Figure activations_sample(Effort effort) {
  const TorchThreads pinned(1, Processors::one);
  const std::vector<double> whole = added_to_chain(effort, kEachTime.keys);
  const std::vector<double> sampled = added_to_chain(effort, kEachTime.keys + R"(, "sample": 16)");
  return {"activations_sample_16", median_of(sampled) / median_of(whole), "of reading whole",
          at_most(1.0 / 6),
          "processor time that all inputs, outputs and their gradients of 24 modules that hand on 4 MiB each "
          "add to a step with \"sample\": 16, in ms (" +
              spread_of(scaled(sampled, 1000)) + "), over that of reading them whole (" +
              spread_of(scaled(whole, 1000)) + "), one thread"};
}

Figure activations_overhead(Effort effort, std::int64_t tokens, const Readings& readings) {
  const Shape shape = shape_of(effort);
  const int rounds = pick(effort, 2, 8);
  Training training(shape, tokens / shape.context);
  CollectingRig rig(readings.keys, {training.model(), training.optimizer(), [&] { training.backward(); }});
  const auto added = rig.measure(rounds, [] {});
  const double share = rig.own_share();
  rig.check(static_cast<std::size_t>(rounds));
  const double idle = median_of(added.idle);
  return {
      readings.name + "overhead_" + std::to_string(tokens), share, "of a step", at_most(0.10),
      readings.text + "the share of the training thread's time that this takes in " +
          options_of(shape, tokens) + " (" + text_of(idle * 1000) +
          " ms) on two threads, by the monitor's own meter; by the whole step and the two steps beside it, "
          "with the machine's noise: " +
          spread_of(scaled(added.seconds, 1 / idle)) + (tokens == 512 ? " (msprobe adds 2.14)" : "")};
}

std::vector<Figure> activation_cost(Effort effort) {
  const TorchThreads two(kThreads);
  return {activations_vs_read(effort, kEachTime), activations_vs_read(effort, kReused),
          activations_overhead(effort, 2048, kEachTime), activations_overhead(effort, 2048, kReused),
          activations_overhead(effort, 512, kEachTime)};
}

std::vector<Figure> communication_cost(Effort effort) {
  const TorchThreads two(kThreads);
  const int rounds = pick(effort, 2, 40);
  torch::nn::Module model;
  at::Tensor parameter = model.register_parameter("weight", at::full({pick(effort, 1 << 12, 20 << 20)}, 0.5));
  parameter.mutable_grad() = at::full_like(parameter, 0.25).detach();
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0));
  GradientAverage gradients({0, 1, "127.0.0.1", 0}, model.parameters(), Participation::every_parameter);
  CollectingRig rig(R"("cc_distribution": {"enable": true})",
                    {model, optimizer, [&] { gradients.average(); }});
  const auto added = rig.measure(rounds, [&] { read_all({parameter.grad()}); });
  rig.check(static_cast<std::size_t>(rounds));
  return {share_of_read("communication_vs_read", added, 1.5,
                        "the outputs of an allreduce of 80 MiB (gloo, one rank)", "them")};
}

}  // namespace

std::vector<Bench> training_cost() {
  return {{{"idle_step_ns", "on_step_extra_ns"}, idle_step},
          {{"idle_overhead"}, idle_overhead},
          {{"grads_vs_read", "grads_overhead_2048", "grads_overhead_512", "state_vs_read",
            "state_overhead_2048", "state_overhead_512"},
           parameter_cost},
          {{"reading_ns"}, reading_ns},
          {{"activations_vs_read", "activations_reused_vs_read", "activations_overhead_2048",
            "activations_reused_overhead_2048", "activations_overhead_512"},
           activation_cost},
          {{"activations_sample_16"}, [](Effort effort) { return std::vector{activations_sample(effort)}; }},
          {{"communication_vs_read"}, communication_cost}};
}

}  // namespace gradmon
