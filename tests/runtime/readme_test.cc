// SPDX-License-Identifier: Apache-2.0
// README's example in C++, compiled and run as it stands there.
#include <gradmon/monitor.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdlib>
#include <filesystem>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tools/demo_report/outcome.h"
#include GRADMON_CATCH_HEADER

namespace {

at::Tensor loss_of(torch::nn::LinearImpl& model) { return model.forward(at::ones({3, 4})).pow(2).mean(); }

int averaged = 0;
void average_gradients(const torch::nn::Module&) { ++averaged; }

TEST_CASE("README's example in C++ collects as the text beside it says") {
  const gradmon::TemporaryDirectory directory;
  std::filesystem::current_path(directory.path());
  gradmon::write_text("monitor_config.json", R"({"wg_distribution": true, "ops": ["norm"]})");
  unsetenv("DYNAMIC_MONITOR");
  const auto model = std::make_shared<torch::nn::LinearImpl>(4, 2);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const int steps = 4;
#include "readme_example.inc"
  monitor.stop();
  CHECK(averaged == steps);
  const auto rows = gradmon::rows_in_files(directory / "monitor_output", "grad_reduced");
  REQUIRE(rows.count(0) == 1);
  CHECK(rows.at(0).size() == 4);
}

}  // namespace
