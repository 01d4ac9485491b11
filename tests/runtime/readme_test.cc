// SPDX-License-Identifier: Apache-2.0
// Compiles and runs README's example in C++, unchanged.
#include <gradmon/monitor.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdlib>

#include "tests/support/catch.h"
#include "tests/support/outcome.h"
#include "tests/support/temporary_directory.h"

namespace {

at::Tensor loss_of(torch::nn::LinearImpl& model) { return model.forward(at::ones({3, 4})).pow(2).mean(); }

// Makes a directory the current one; the destructor goes back.
class CurrentDirectory {
 public:
  explicit CurrentDirectory(const std::filesystem::path& directory) {
    std::filesystem::current_path(directory);
  }
  ~CurrentDirectory() { std::filesystem::current_path(before_); }
  CurrentDirectory(const CurrentDirectory&) = delete;
  CurrentDirectory& operator=(const CurrentDirectory&) = delete;

 private:
  const std::filesystem::path before_ = std::filesystem::current_path();
};

int averaged = 0;
void average_gradients(const torch::nn::Module&) { ++averaged; }

TEST_CASE("README's example in C++ compiles and collects gradients") {
  const gradmon::TemporaryDirectory directory;
  const CurrentDirectory current(directory.path());  // After `directory`: goes back before it is removed.
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
