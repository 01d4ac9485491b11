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

#include <algorithm>
#include <filesystem>
#include <map>

#include "control/debian_version.h"
#include "tests/hooks/gradient_hooks_on.h"
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
  for (const at::Tensor& parameter : model->parameters()) count += gradient_hooks_on(parameter);
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

struct DynamicJob {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "config.json";
  MonitorOptions options;
  DynamicJob() {
    keep_jobs_in(directory);
    options.output_dir = directory / "out";
    options.dynamic = true;
  }
};

// True if the monitor has collected anything: without rows a test of its effect would prove nothing.
bool has_rows(const DynamicJob& job) {
  const std::filesystem::path output = job.directory / "out";
  if (!std::filesystem::exists(output)) return false;
  const std::filesystem::recursive_directory_iterator files(output);
  return std::any_of(begin(files), end(files),
                     [](const auto& file) { return file.path().extension() == ".csv"; });
}

std::string error_of(const Monitor& monitor) {
  std::string error;
  for (const RankStatus& rank : monitor.status().ranks) error += rank.error;
  return error;
}

TEST_CASE("parameters after 200 steps are bit-identical with the monitor absent and off and on") {
  const std::string absent = train(nullptr);
  for (const bool on : {false, true}) {
    DynamicJob job;
    write_text(job.path, config(on ? "true" : "false"));
    Monitor monitor(job.path, job.options);
    CAPTURE(on);
    REQUIRE(train(&monitor) == absent);
    CHECK(has_rows(job) == on);
    CHECK(error_of(monitor) == "");
  }
  DynamicJob job;
  write_text(job.path, config("false"));
  job.options.dynamic = false;  // static mode: on, whatever dynamic_on says
  Monitor monitor(job.path, job.options);
  REQUIRE(train(&monitor) == absent);
  CHECK(has_rows(job));
  CHECK(error_of(monitor) == "");
}

TEST_CASE("parameters after 200 steps are bit-identical with the monitor toggled every third step") {
  const std::string absent = train(nullptr);
  DynamicJob job;
  write_text(job.path, config("false"));
  Monitor monitor(job.path, job.options);
  int toggles = 0;
  bool was_off = false, was_on = false;
  const std::string toggled = train(&monitor, [&](int i, torch::nn::Sequential& model) {
    (hooks_on(model) > 0 ? was_on : was_off) = true;
    if (i % 3 != 2) return;
    const Status before = monitor.status();
    write_text(job.path, config(before.state == "on" ? "false" : "true"));
    // The agreement continues while the training thread waits here between two steps.
    REQUIRE(
        eventually([&] { return monitor.status().pending || monitor.status().revision > before.revision; }));
    toggles += 1;
  });
  REQUIRE(toggles == kSteps / 3);
  REQUIRE(was_off);
  REQUIRE(was_on);
  REQUIRE(toggled == absent);
  CHECK(has_rows(job));
  CHECK(error_of(monitor) == "");
}

TEST_CASE("no hook exists before a plan is on or after it has run out") {
  DynamicJob job;
  write_text(job.path, R"({"wg_distribution": true, "dynamic_on": true, "collect_times": 5})");
  Monitor monitor(job.path, job.options);
  std::map<int, std::size_t> hooks;
  train(&monitor, [&](int i, torch::nn::Sequential& model) { hooks[i] = hooks_on(model); });
  REQUIRE(hooks[0] == 0);
  REQUIRE(hooks[1] == 4);
  REQUIRE(hooks[5] == 4);
  for (int i = 6; i < kSteps; ++i) REQUIRE(hooks[i] == 0);
}

}  // namespace
}  // namespace gradmon
