// SPDX-License-Identifier: Apache-2.0
// The CSV files: every kind and op equals the value that plain torch computes in
// double.
#include <ATen/ops/linalg_svdvals.h>
#include <gradmon/monitor.h>

#include <cmath>
#include <set>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/conformance/csv_table.h"
#include "tests/whole/conformance/plain_training.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr int kSteps = 4;
constexpr double kEps = 0.05;

// Trains kSteps steps under a config, in static mode, and gives the rows of the files.
class CollectedRun {
 public:
  explicit CollectedRun(const std::string& kinds, int micro_batches = 1, bool in_place = false) {
    keep_jobs_in(directory_);
    write_text(
        directory_ / "config.json",
        R"({"ops": ["norm", "min", "max", "mean", "nans", "zeros", "absmax"], "eps": 0.05, "ndigits": 17, )" +
            kinds + "}");
    MonitorOptions options;
    options.output_dir = directory_ / "out";
    options.dynamic = false;
    options.grad_acc_steps = micro_batches;
    PlainTraining training(micro_batches, in_place);
    Monitor monitor(directory_ / "config.json", options);
    monitor.watch(training.model(), training.optimizer());
    for (int i = 0; i < kSteps; ++i) training.step(monitor);
    monitor.stop();
    status_ = monitor.status();
  }

  std::vector<CsvRow> rows(const std::string& prefix) const {
    const auto run = run_directory_in(directory_ / "out");
    return run.empty() ? std::vector<CsvRow>{} : csv_rows(run, prefix);
  }
  const Status& status() const { return status_; }

 private:
  const TemporaryDirectory directory_;
  Status status_;
};

double reference(const std::string& op, const at::Tensor& tensor) {
  const at::Tensor x = tensor.to(at::kDouble);
  if (op == "norm") return x.norm().item<double>();
  if (op == "min") return x.min().item<double>();
  if (op == "max") return x.max().item<double>();
  if (op == "mean") return x.mean().item<double>();
  if (op == "nans") return x.isnan().sum().item<double>();
  if (op == "absmax") return x.abs().max().item<double>();
  return x.abs().lt(kEps).to(at::kDouble).mean().item<double>();
}

// To a millionth of the value; for a mean, which may cancel out, to a millionth of the mean magnitude.
bool equals(const std::string& op, const at::Tensor& tensor, double found) {
  const double wanted = reference(op, tensor);
  const double scale = op == "mean" ? tensor.to(at::kDouble).abs().mean().item<double>() : std::fabs(wanted);
  return std::fabs(found - wanted) <= 1e-6 * scale;
}

std::string shape_of(const at::Tensor& tensor) {
  std::string text = "[";
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(tensor.size(i));
  return text + "]";
}

// Requires exactly the rows expected under `key`, with equal values.
void compare(const CollectedRun& collected, const std::string& prefix, const std::string& key,
             int micro_batches) {
  const ExpectedValues expected = PlainTraining::expected(micro_batches, kSteps);
  std::set<ValueKey> seen;
  for (const CsvRow& row : collected.rows(prefix)) {
    const int micro = row.count("micro_step") != 0 ? std::stoi(row.at("micro_step")) : 0;
    const ValueKey at{key, row.at("name"), std::stoi(row.at("step")), micro};
    CAPTURE(prefix, row.at("name"), row.at("step"), micro);
    REQUIRE(expected.count(at) == 1);
    REQUIRE(seen.insert(at).second);
    const at::Tensor& tensor = expected.at(at);
    for (const char* op : {"norm", "min", "max", "mean", "nans", "zeros", "absmax"}) {
      CAPTURE(op, row.at(op));
      REQUIRE(equals(op, tensor, std::stod(row.at(op))));
    }
    REQUIRE(row.at("shape") == shape_of(tensor));
    REQUIRE(row.at("dtype") == "torch.float32");
    REQUIRE(row.at("vpp_stage") == "0");
  }
  std::size_t expected_rows = 0;
  for (const auto& [at, tensor] : expected) expected_rows += std::get<0>(at) == key ? 1 : 0;
  CAPTURE(prefix);
  REQUIRE(expected_rows > 0);
  REQUIRE(seen.size() == expected_rows);
}

TEST_CASE("gradients before and after reduction equal those of plain torch") {
  for (const int micro_batches : {1, 3}) {
    const CollectedRun collected(R"("wg_distribution": true)", micro_batches);
    compare(collected, "grad_unreduced", "grad_unreduced", micro_batches);
    compare(collected, "grad_reduced", "grad_reduced", micro_batches);
  }
}

TEST_CASE("gradients per micro batch equal the increment of each backward pass") {
  const CollectedRun collected(R"("wg_distribution": true, "monitor_mbs_grad": true)", 3);
  compare(collected, "grad_unreduced", "micro_grad", 3);
}

TEST_CASE("weights and moments around the update equal those of plain torch") {
  const CollectedRun collected(R"("param_distribution": true, "mv_distribution": true)");
  for (const char* prefix : {"param_origin", "param_updated", "exp_avg", "exp_avg_sq"})
    compare(collected, prefix, prefix, 1);
}

TEST_CASE("activations and their gradients equal those of plain torch") {
  for (const int micro_batches : {1, 2}) {
    const CollectedRun collected(R"("xy_distribution": true, "all_xy": true)", micro_batches);
    compare(collected, "actv", "actv", micro_batches);
    compare(collected, "actv_grad", "actv_grad", micro_batches);
  }
}

TEST_CASE("activations around an in-place module equal those of its out-of-place form") {
  const CollectedRun collected(R"("xy_distribution": true, "all_xy": true)", 1, true);
  compare(collected, "actv", "actv", 1);
  compare(collected, "actv_grad", "actv_grad", 1);
}

TEST_CASE("forward_only and backward_only collect one direction only") {
  const CollectedRun forward(R"("xy_distribution": true, "all_xy": true, "forward_only": true)");
  compare(forward, "actv", "actv", 1);
  CHECK(forward.rows("actv_grad").empty());
  const CollectedRun backward(R"("xy_distribution": true, "all_xy": true, "backward_only": true)");
  compare(backward, "actv_grad", "actv_grad", 1);
  CHECK(backward.rows("actv").empty());
}

TEST_CASE("mg_direction equals the share of equal signs of gradient and momentum") {
  const CollectedRun collected(R"("mg_direction": true)");
  const ExpectedValues expected = PlainTraining::expected(1, kSteps);
  std::size_t rows = 0;
  for (const CsvRow& row : collected.rows("other")) {
    const int step = std::stoi(row.at("step"));
    const at::Tensor gradient = expected.at({"grad_reduced", row.at("name"), step, 0});
    const at::Tensor momentum = expected.at({"exp_avg", row.at("name"), step, 0});
    const double agree = (gradient.sign() * momentum.sign()).to(at::kDouble).mean().item<double>();
    CAPTURE(row.at("name"), step);
    CHECK(std::fabs(std::stod(row.at("mg_direction")) - (agree + 1) / 2) < 1e-9);
    CHECK(row.at("norm").empty());
    ++rows;
  }
  CHECK(rows == 4 * (kSteps - 1));  // no momentum before the first step
}

TEST_CASE("stable rank and largest singular value equal those of a singular value decomposition") {
  const CollectedRun collected(R"("recording_l2_features": true, "l2_targets": {"linear_hook": []})");
  const ExpectedValues expected = PlainTraining::expected(1, kSteps);
  std::size_t rows = 0;
  for (const CsvRow& row : collected.rows("linear_hook")) {
    const std::string name = row.at("name").substr(0, row.at("name").find('.'));
    const at::Tensor weight =
        expected.at({"param_origin", name + ".weight", std::stoi(row.at("step")), 0}).to(at::kDouble);
    const double largest = at::linalg_svdvals(weight).max().item<double>();
    CAPTURE(row.at("name"), row.at("step"));
    CHECK(row.at("name") == name + ".linear");
    CHECK(std::fabs(std::stod(row.at("kernel_norm")) / largest - 1) < 1e-3);
    CHECK(std::fabs(std::stod(row.at("sr")) / (weight.norm().item<double>() / largest) - 1) < 1e-3);
    ++rows;
  }
  CHECK(rows == 2 * kSteps);
}

TEST_CASE("all kinds at once equal plain torch and no row is dropped") {
  const CollectedRun collected(
      R"("wg_distribution": true, "param_distribution": true, "mv_distribution": true,
         "xy_distribution": true, "all_xy": true, "mg_direction": true)");
  for (const char* prefix :
       {"grad_unreduced", "grad_reduced", "param_origin", "param_updated", "exp_avg", "actv", "actv_grad"})
    compare(collected, prefix, prefix, 1);
  REQUIRE(collected.status().ranks.front().dropped == 0);
  REQUIRE(collected.status().ranks.front().error.empty());
}

}  // namespace
}  // namespace gradmon
