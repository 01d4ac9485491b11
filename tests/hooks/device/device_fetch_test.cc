// SPDX-License-Identifier: Apache-2.0
// Tests the path of device tensors with tensors of the CPU, because there may be no other device.
#include "hooks/device/device_fetch.h"

#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>

#include "hooks/device/device_stats.h"
#include "hooks/rows/row_writer.h"
#include "tests/hooks/fake_stream.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

constexpr double kEps = 1e-2;
constexpr std::uint8_t kAllOps = (1U << kOps) - 1;

Reading read_directly(const at::Tensor& tensor) {
  HookFuse fuse;
  Reading reading;
  reading.read(tensor, kEps, "x", fuse);
  REQUIRE_FALSE(fuse.tripped());
  return reading;
}

// Reads the tensor as if it were on a device: the values are pending.
Reading read_as_pending(const at::Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  Reading reading = read_directly(tensor);
  reading.stats.values.fill(std::nan(""));
  reading.pending = device_stats(tensor, kEps);
  return reading;
}

void check_same(const std::array<double, kOps>& found, const Reading& expected) {
  for (std::size_t op = 0; op < kOps; ++op) {
    INFO(kStatistics[op].name);
    CHECK(std::fabs(found[op] - expected.stats.values[op]) <= 1e-6 * (1 + std::fabs(found[op])));
  }
}

struct WrittenRows {
  FakeStream stream;
  RowWriter rows{stream, Revision{1}, kAllOps};

  WrittenRows() { rows.begin_step(Step{5}); }
};

TEST_CASE("a batch returns the numbers of its tensors in the order they were added") {
  DeviceBatch batch;
  std::vector<Reading> expected;
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor tensor = at::randn({30, 20}).to(type);
    expected.push_back(read_directly(tensor));
    batch.add(read_as_pending(tensor).pending);
  }
  const at::Tensor integers = at::randint(-5, 5, {77}, at::kInt);
  expected.push_back(read_directly(integers));
  batch.add(read_as_pending(integers).pending);
  const auto values = batch.resolve();
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) check_same(values[i].value(), expected[i]);
  CHECK(batch.resolve().empty());
}

TEST_CASE("pending numbers are those at the time of reading and keep no tensor alive") {
  at::Tensor tensor = at::randn({50});
  const Reading expected = read_directly(tensor);
  std::vector<Reading> readings{read_as_pending(tensor), read_directly(tensor), Reading{}};
  CHECK(tensor.use_count() == 1);
  tensor.zero_();
  resolve_pending({&readings[0], &readings[1], &readings[2]});
  check_same(readings[0].stats.values, expected);
  CHECK_FALSE(readings[0].pending);
  CHECK(readings[1].stats.values == expected.stats.values);
}

TEST_CASE_METHOD(WrittenRows,
                 "rows with pending numbers are written with their values in the order of the calls") {
  const at::Tensor a = at::randn({4}), b = at::randn({6}), c = at::randn({8});
  const std::uint32_t target = stream.target_id(0, "x");
  rows.write({Kind::grad_reduced, target, 0}, read_directly(a), "a");
  CHECK(stream.records.size() == 1);
  rows.write({Kind::grad_reduced, target, 1}, read_as_pending(b), "b");
  rows.write({Kind::grad_reduced, target, 2}, read_directly(c), "c");
  CHECK(stream.records.size() == 1);
  rows.end_step();
  REQUIRE(stream.records.size() == 3);
  const std::array<at::Tensor, 3> written{a, b, c};
  for (std::size_t i = 0; i < 3; ++i) {
    const Record& record = stream.records[i];
    CHECK(record.sequence == i);
    CHECK(record.step == 5);
    std::array<double, kOps> values{};
    std::copy_n(record.values.begin(), kOps, values.begin());
    check_same(values, read_directly(written[i]));
  }
  rows.end_step();
  CHECK(stream.records.size() == 3);
}

std::optional<DeviceScalars::Values> first_two_numbers(const double* numbers, double) {
  return DeviceScalars::Values{numbers[0], numbers[1]};
}

std::optional<DeviceScalars::Values> no_values(const double*, double) { return std::nullopt; }

TEST_CASE_METHOD(WrittenRows, "a row whose pending numbers give no values is left out and counted") {
  const at::Tensor scalars = at::randn({2}, at::kDouble);
  rows.write({Kind::other, 0, 0}, {{Column::mg_direction, 0}},
             pack_scalars({scalars[0]}, 0, no_values, "why"), "a");
  rows.write({Kind::other, 0, 1}, {{Column::mg_direction, 0}},
             pack_scalars({scalars[1]}, 0, first_two_numbers), "b");
  rows.end_step();
  REQUIRE(stream.records.size() == 1);
  CHECK(stream.records[0].sequence == 1);
  CHECK(stream.records[0].values[static_cast<std::size_t>(Column::mg_direction)] ==
        scalars[1].item<double>());
  CHECK(rows.not_applicable() == 1);
}

TEST_CASE("the cause of a failure is the first line of torch's message and never empty") {
  CHECK(first_line("") == "an exception without a message");
  CHECK(first_line("\nat line 3") == "an exception without a message");
  CHECK(first_line("no such op\nat line 3") == "no such op");
}

TEST_CASE_METHOD(WrittenRows, "pending scalars are written to the columns of their row") {
  const at::Tensor scalars = at::randn({3}, at::kDouble);
  const double nan = std::nan("");
  rows.write({Kind::attention_hook, 0, 0}, {{Column::entropy, nan}, {Column::softmax_max, nan}},
             pack_scalars({scalars[0], scalars[1]}, 0, first_two_numbers));
  rows.write({Kind::other, 0, 1}, {{Column::mg_direction, nan}},
             pack_scalars({scalars[2]}, 0, first_two_numbers));
  rows.write({Kind::other, 0, 2}, {{Column::mg_direction, 0.5}});
  CHECK(stream.records.empty());
  rows.end_step();
  REQUIRE(stream.records.size() == 3);
  const auto value = [&](std::size_t row, Column column) {
    CHECK((stream.records[row].mask & bit_of(column)) != 0);
    return stream.records[row].values[static_cast<std::size_t>(column)];
  };
  CHECK(value(0, Column::entropy) == scalars[0].item<double>());
  CHECK(value(0, Column::softmax_max) == scalars[1].item<double>());
  CHECK(value(1, Column::mg_direction) == scalars[2].item<double>());
  CHECK(value(2, Column::mg_direction) == 0.5);
}

TEST_CASE_METHOD(WrittenRows, "pending rows of a step that did not end are discarded") {
  rows.write({Kind::grad_reduced, 0, 0}, read_as_pending(at::randn({4})), "a");
  rows.begin_step(Step{6});
  rows.end_step();
  CHECK(stream.records.empty());
}

TEST_CASE_METHOD(WrittenRows, "a meta tensor is counted as not applicable and nothing is pending for it") {
  const Reading reading = read_directly(at::empty({4, 4}, at::TensorOptions(at::kFloat).device(at::kMeta)));
  CHECK_FALSE(reading.pending);
  rows.write({Kind::grad_reduced, stream.target_id(0, "a"), 0}, reading, "a");
  rows.end_step();
  CHECK(stream.records.empty());
  CHECK(rows.not_applicable() == 1);
  CHECK(stream.reasons["0:a"].find("meta") != std::string::npos);
}

TEST_CASE("a nested tensor, which has no sizes, is not applicable for that reason") {
  const Reading reading =
      read_directly(at::_nested_tensor_from_tensor_list({at::ones({1, 2}), at::ones({2, 2})}));
  CHECK(reading.stats.outcome == TensorStats::Outcome::not_applicable);
  CHECK(reading.why == "a nested tensor");
}

}  // namespace
}  // namespace gradmon
