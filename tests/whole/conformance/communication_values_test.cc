// SPDX-License-Identifier: Apache-2.0
// The CSV rows of collectives: several calls from one place in a step are combined by
// each op's own rule.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cmath>

#include "control/debian_version.h"
#include "tests/hooks/gloo_ranks.h"
#include "tests/whole/conformance/one_rank_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

at::Tensor first(int step) { return at::arange(6, at::kFloat) - 2.5 + step; }
at::Tensor second(int step) { return at::arange(3, at::kFloat) * 0.1 - step; }

// Makes three steps, each with two calls of all_reduce from one place and one of broadcast.
std::vector<CsvRow> communicate(const std::string& keys) {
  OneRankJob job(R"("ops": ["norm", "min", "max", "mean", "nans"], "ndigits": 17, )" + keys);
  torch::nn::Linear model(1, 1);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0));
  job.monitor->watch(*model, optimizer);
  run_ranks(1, [&](GlooGroup& group) {
    for (int step = 0; step < 3; ++step) {
      for (const at::Tensor& tensor : {first(step), second(step)}) group.all_reduce({tensor})->wait();
      group.broadcast({first(step)})->wait();
      job.monitor->step(optimizer);
    }
  });
  return job.rows("other");
}

void compare(const CsvRow& row, const at::Tensor& all) {
  const at::Tensor x = all.to(at::kDouble);
  const auto near = [&](const char* op, const at::Tensor& wanted) {
    CAPTURE(row.at("name"), row.at("step"), op);
    const double value = wanted.item<double>();
    CHECK(std::fabs(std::stod(row.at(op)) - value) <= 1e-6 * std::fabs(value));
  };
  near("norm", x.norm());
  near("min", x.min());
  near("max", x.max());
  near("mean", x.mean());
  CHECK(row.at("nans") == "0");
  CHECK(row.at("mg_direction").empty());
}

bool starts_with(const std::string& text, const std::string& with) {
  return text.compare(0, with.size(), with) == 0;
}

TEST_CASE("the row of several collectives from one place has the statistics of all their elements") {
  const auto rows = communicate(R"("cc_distribution": {"enable": true, "cc_pre_hook": true})");
  REQUIRE(rows.size() == 3 * 4);
  for (const char* direction : {"pre", "post"}) {
    int reduced = 0, shared = 0;
    for (const CsvRow& row : rows) {
      const int step = std::stoi(row.at("step"));
      if (starts_with(row.at("name"), std::string("all_reduce.") + direction + "_0@")) {
        compare(row, at::cat({first(step), second(step)}));
        ++reduced;
      } else if (starts_with(row.at("name"), std::string("broadcast.") + direction + "_0@")) {
        compare(row, first(step));
        ++shared;
      }
    }
    CAPTURE(direction);
    CHECK(reduced == 3);
    CHECK(shared == 3);
  }
}

TEST_CASE("inputs of collectives are collected only with cc_pre_hook") {
  const auto rows = communicate(R"("cc_distribution": {"enable": true})");
  REQUIRE(rows.size() == 3 * 2);
  for (const CsvRow& row : rows) CHECK(row.at("name").find(".post_") != std::string::npos);
}

}  // namespace
}  // namespace gradmon
