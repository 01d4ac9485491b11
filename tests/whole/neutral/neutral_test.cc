// SPDX-License-Identifier: Apache-2.0
// Training is the same, bit for bit, whatever the monitor does.
#include <gradmon/monitor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <map>

#include "control/debian_version.h"
#include "tests/support/real_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr int kSteps = 200;

torch::nn::Sequential make_model() {
  torch::manual_seed(7);
  return torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::ReLU(), torch::nn::Dropout(0.2),
                               torch::nn::Linear(16, 3));
}

std::size_t hooks_on(torch::nn::Sequential& model) {
  std::size_t count = 0;
  for (const at::Tensor& parameter : model->parameters()) {
    const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(parameter);
    if (accumulator) count += accumulator->post_hooks().size();
    count += torch::autograd::impl::hooks(parameter).size();
  }
  return count;
}

std::string config(const char* dynamic_on) {
  return std::string(
             R"({"wg_distribution": true, "param_distribution": true, "ops": ["min", "max", "mean", "norm",
         "nans", "zeros"], "dynamic_on": )") +
         dynamic_on + "}";
}

// Trains and returns the bytes of all parameters. `between` is called before each step.
std::string train(Monitor* monitor, const std::function<void(int, torch::nn::Sequential&)>& between = {}) {
  auto model = make_model();
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
  if (monitor != nullptr) monitor->watch(*model, optimizer);
  for (int i = 0; i < kSteps; ++i) {
    if (between) between(i, model);
    optimizer.zero_grad();
    model->forward(torch::randn({8, 6})).pow(2).sum().backward();
    if (monitor != nullptr) {
      monitor->step(optimizer);
    } else {
      optimizer.step();
    }
  }
  if (monitor != nullptr) monitor->stop();
  REQUIRE(hooks_on(model) == 0);
  std::string bytes;
  for (const at::Tensor& parameter : model->parameters()) {
    const at::Tensor values = parameter.detach().contiguous();
    bytes.append(static_cast<const char*>(values.data_ptr()), values.nbytes());
  }
  return bytes;
}

struct Fixture {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "config.json";
  MonitorOptions options;
  Fixture() {
    options.output_dir = directory / "out";
    options.dynamic = true;
  }
};

TEST_CASE("parameters after 200 steps are bit equal with the monitor absent off and on") {
  const std::string absent = train(nullptr);
  for (const char* dynamic_on : {"false", "true"}) {
    Fixture f;
    write_text(f.path, config(dynamic_on));
    Monitor monitor(f.path, f.options);
    CAPTURE(dynamic_on);
    REQUIRE(train(&monitor) == absent);
  }
  Fixture f;
  write_text(f.path, config("false"));
  f.options.dynamic = false;
  Monitor monitor(f.path, f.options);
  REQUIRE(train(&monitor) == absent);
}

TEST_CASE("parameters after 200 steps are bit equal when toggled every third step") {
  const std::string absent = train(nullptr);
  Fixture f;
  write_text(f.path, config("false"));
  Monitor monitor(f.path, f.options);
  int toggles = 0;
  const std::string toggled = train(&monitor, [&](int i, torch::nn::Sequential&) {
    if (i % 3 != 2) return;
    const Status before = monitor.status();
    write_text(f.path, config(before.state == "on" ? "false" : "true"));
    // The agreement goes on while the trainer stands between two steps.
    REQUIRE(
        eventually([&] { return monitor.status().pending || monitor.status().revision > before.revision; }));
    toggles += 1;
  });
  REQUIRE(toggles == kSteps / 3);
  REQUIRE(toggled == absent);
}

TEST_CASE("no hook is there before a plan is on nor after it has ended by itself") {
  Fixture f;
  write_text(f.path, R"({"wg_distribution": true, "dynamic_on": true, "collect_times": 5})");
  Monitor monitor(f.path, f.options);
  std::map<int, std::size_t> hooks;
  train(&monitor, [&](int i, torch::nn::Sequential& model) { hooks[i] = hooks_on(model); });
  REQUIRE(hooks[0] == 0);
  REQUIRE(hooks[1] == 4);
  REQUIRE(hooks[5] == 4);
  for (int i = 6; i < kSteps; ++i) REQUIRE(hooks[i] == 0);
}

TEST_CASE("two coupled ranks end with the same bits with and without the monitor") {
  const TemporaryDirectory directory;
  const auto run = [&](const std::string& name, const std::string& monitor, const std::string& text) {
    write_text(directory / "config.json", text);
    const int code =
        run_program({program("gradmonctl"),
                     "run",
                     "-n",
                     "2",
                     "--",
                     program("gradmon-train"),
                     "--steps",
                     "60",
                     "--layers",
                     "1",
                     "--width",
                     "16",
                     "--context",
                     "8",
                     "--batch",
                     "2",
                     "--threads",
                     "1",
                     "--seed",
                     "3",
                     "--config",
                     (directory / "config.json").string(),
                     "--monitor",
                     monitor,
                     "--save",
                     (directory / (name + "{rank}")).string()},
                    directory / "log",
                    {{"MONITOR_OUTPUT_DIR", (directory / "out").string()}, {"DYNAMIC_MONITOR", "True"}});
    CAPTURE(read_text(directory / "log"));
    REQUIRE(code == 0);
    return read_text(directory / (name + "0")) + read_text(directory / (name + "1"));
  };
  const std::string absent = run("absent", "off", config("false"));
  REQUIRE(absent.size() > 1000);
  REQUIRE(run("off", "on", config("false")) == absent);
  REQUIRE(run("on", "on", config("true")) == absent);
}

}  // namespace
}  // namespace gradmon
