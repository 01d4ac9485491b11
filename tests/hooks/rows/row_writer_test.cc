// SPDX-License-Identifier: Apache-2.0
// Rows that are pushed before a device has computed their values.
#include "hooks/rows/row_writer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "hooks/device/device_stats.h"
#include "tests/hooks/late_stream.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

constexpr std::uint8_t kAllOps = (1U << kOps) - 1;

Reading pending_reading(const at::Tensor& tensor, double scale = 1) {
  const c10::NoGradGuard no_grad;
  HookFuse fuse;
  Reading reading;
  reading.read(tensor, 1e-8, "x", fuse, scale);
  reading.pending = device_stats(tensor, 1e-8);
  reading.stats.values.fill(-1);
  return reading;
}

double value(const Record& record, Op op) { return record.values[static_cast<std::size_t>(op)]; }

std::optional<DeviceScalars::Values> no_values(const double*, double) { return std::nullopt; }

struct LateStep {
  LateStream stream;
  RowWriter rows{stream, Revision{1}, kAllOps};

  LateStep() { rows.begin_step(Step{5}); }
  void write(std::uint64_t sequence, const Reading& reading) {
    rows.write({Kind::grad_reduced, 0, sequence}, reading, "x");
  }
};

TEST_CASE("a stream that takes late values gets the records at once and their values later") {
  LateStep step;
  HookFuse fuse;
  Reading direct;
  direct.read(at::full({3}, 7.0), 1e-8, "x", fuse);
  step.write(0, direct);
  step.write(1, pending_reading(at::full({4}, 2.0)));
  step.write(2, direct);
  step.write(3, pending_reading(at::full({4}, 6.0), 3));
  step.rows.end_step();
  REQUIRE(step.stream.taken == 1);
  std::vector<Record>& records = step.stream.records;
  REQUIRE(records.size() == 4);
  CHECK(records[0].mask == kAllOps);
  CHECK((records[1].mask & kLate) != 0);
  CHECK(records[2].mask == kAllOps);
  CHECK((records[3].mask & kLate) != 0);
  CHECK(step.stream.late->ready());
  step.stream.complete();
  REQUIRE(records.size() == 4);
  for (const Record& record : records) CHECK(record.mask == kAllOps);
  CHECK(value(records[0], Op::max) == 7);
  CHECK(value(records[1], Op::max) == 2);
  CHECK(value(records[1], Op::norm) == 4);
  CHECK(value(records[2], Op::max) == 7);
  CHECK(value(records[3], Op::max) == 2);
}

TEST_CASE("a late row without values is left out and counted") {
  LateStep step;
  step.write(0, pending_reading(at::zeros({4})));
  step.rows.write({Kind::other, 0, 1}, {{Column::mg_direction, 0}},
                  pack_scalars({at::zeros({}, at::kDouble)}, 0, no_values, "why"), "a");
  step.rows.end_step();
  std::vector<Record>& records = step.stream.records;
  REQUIRE(records.size() == 2);
  step.stream.complete();
  REQUIRE(records.size() == 1);
  CHECK(records[0].sequence == 0);
  CHECK(step.rows.not_applicable() == 1);
}

TEST_CASE("a row that depends on other tensors is left out if those are all zeros") {
  LateStep step;
  const PendingScalars zeros = pending_reading(at::zeros({4})).pending;
  const PendingScalars ones = pending_reading(at::full({4}, 1.0)).pending;
  const PendingScalars nans = pending_reading(at::full({4}, std::nan(""))).pending;
  HookFuse fuse;
  Reading direct;
  direct.read(at::full({3}, 7.0), 1e-8, "x", fuse);
  const Reading pending = pending_reading(at::full({3}, 8.0));
  std::uint64_t sequence = 0;
  for (const Reading& reading : {direct, pending}) {
    for (const UnlessZeros& others : {UnlessZeros{zeros}, UnlessZeros{zeros, ones}, UnlessZeros{nans},
                                      UnlessZeros{zeros, zeros}, UnlessZeros{}})
      step.rows.write({Kind::exp_avg, 0, sequence++}, reading, "x", others);
  }
  step.rows.write({Kind::other, 0, sequence++}, {{Column::mg_direction, 0.5}}, {}, "a", {zeros});
  step.rows.write({Kind::other, 0, sequence++}, {{Column::mg_direction, 0.5}}, {}, "a", {ones});
  step.rows.end_step();
  std::vector<Record>& records = step.stream.records;
  step.stream.complete();
  std::vector<std::uint64_t> left;
  for (const Record& record : records) left.push_back(record.sequence);
  CHECK(left == std::vector<std::uint64_t>{1, 2, 4, 6, 7, 9, 11});
  for (const Record& record : records) {
    if (record.kind == Kind::exp_avg) CHECK(value(record, Op::min) == (record.sequence < 5 ? 7 : 8));
    if (record.kind == Kind::other)
      CHECK(record.values[static_cast<std::size_t>(Column::mg_direction)] == 0.5);
    CHECK((record.mask & kLate) == 0);
  }
  CHECK(step.rows.not_applicable() == 0);
}

TEST_CASE("a factor is divided out once, whether the values come late or only the condition") {
  LateStep step;
  const PendingScalars ones = pending_reading(at::full({4}, 1.0)).pending;
  HookFuse fuse;
  Reading direct;
  direct.read(at::full({4}, 6.0), 1e-8, "x", fuse, 3);
  step.rows.write({Kind::grad_reduced, 0, 0}, direct, "x", {ones});
  step.rows.write({Kind::grad_reduced, 0, 1}, pending_reading(at::full({4}, 6.0), 3), "x", {ones});
  step.rows.end_step();
  std::vector<Record>& records = step.stream.records;
  step.stream.complete();
  REQUIRE(records.size() == 2);
  for (const Record& record : records) CHECK(value(record, Op::max) == 2);
}

TEST_CASE("late values of several tensors are folded into one row") {
  LateStep step;
  HookFuse fuse;
  Reading direct;
  direct.read(at::full({9}, 1.0), 1e-8, "x", fuse);
  const Reading first = pending_reading(at::full({4}, 4.0));
  const Reading second = pending_reading(at::full({4}, -2.0));
  step.rows.write_folded({Kind::other, 0, 0}, {direct, first, second}, "x");
  step.rows.write_folded({Kind::other, 0, 1}, {direct, direct}, "x");
  step.rows.end_step();
  std::vector<Record>& records = step.stream.records;
  step.stream.complete();
  REQUIRE(records.size() == 2);
  CHECK(value(records[0], Op::min) == -2);
  CHECK(value(records[0], Op::max) == 4);
  CHECK(std::fabs(value(records[0], Op::mean) - 1) < 1e-12);
  CHECK(std::fabs(value(records[0], Op::norm) - std::sqrt(9 + 64 + 16)) < 1e-12);
  CHECK(value(records[1], Op::max) == 1);
}

TEST_CASE("a stream of complete records waits, and is told what is missing but not what took no part") {
  FakeStream stream;
  RowWriter rows(stream, Revision{1}, kAllOps);
  rows.begin_step(Step{5});
  const Reading zeros = pending_reading(at::zeros({4}));
  rows.write({Kind::exp_avg, 0, 0}, zeros, "x", {zeros.pending});
  rows.write({Kind::exp_avg, 0, 1}, pending_reading(at::full({4}, 3.0)), "x");
  rows.write({Kind::other, 0, 2}, {{Column::mg_direction, 0}},
             pack_scalars({at::zeros({}, at::kDouble)}, 0, no_values, "why"), "a");
  rows.end_step();
  REQUIRE(stream.records.size() == 1);
  CHECK(value(stream.records[0], Op::max) == 3);
  REQUIRE(stream.missing.size() == 1);
  CHECK((stream.missing[0] == Kind::other));
}

TEST_CASE("late values outlive the writer of their rows") {
  LateStream stream;
  {
    RowWriter rows(stream, Revision{1}, kAllOps);
    for (const std::int64_t step : {5, 6}) {
      rows.begin_step(Step{step});
      rows.write({Kind::grad_reduced, 0, 0}, pending_reading(at::full({4}, static_cast<double>(step))), "x");
      rows.end_step();
      if (step == 6) break;
      stream.records.clear();
    }
  }
  stream.complete();
  REQUIRE(stream.records.size() == 1);
  CHECK(value(stream.records[0], Op::min) == 6);
}

}  // namespace
}  // namespace gradmon
