// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/reading.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "hooks/rows/hook_fuse.h"
#include "hooks/rows/row_writer.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

Reading reading_of(const at::Tensor& tensor) {
  HookFuse fuse;
  Reading reading;
  reading.read(tensor, 0.1, "x", fuse);
  REQUIRE_FALSE(fuse.tripped());
  return reading;
}

using std::chrono::milliseconds;
using std::chrono::steady_clock;

void busy_wait(milliseconds time) {
  const auto until = steady_clock::now() + time;
  while (steady_clock::now() < until) continue;
}

TEST_CASE("folded readings have the numbers of the concatenated tensor") {
  const at::Tensor a = at::randn({7, 3}, at::kDouble), b = at::randn({500}, at::kDouble),
                   c = at::randn({1}, at::kDouble).mul(10);
  const Reading all =
      folded({reading_of(a), Reading{}, reading_of(b), reading_of(at::empty({0})), reading_of(c)});
  const Reading one = reading_of(at::cat({a.flatten(), b, c}));
  REQUIRE(all.has_value);
  CHECK(all.sizes == c10::DimVector{1});
  CHECK(all.stats.dtype == DType::float64);
  for (std::size_t op = 0; op < kOps; ++op) {
    INFO(kStatistics[op].name);
    CHECK(std::fabs(all.stats.values[op] - one.stats.values[op]) <=
          1e-12 * (1 + std::fabs(one.stats.values[op])));
  }
}

TEST_CASE("folded readings count at the time of the first of them") {
  const Reading first = reading_of(at::randn({4})), last = reading_of(at::randn({4}));
  REQUIRE(first.read_at < last.read_at);
  CHECK(folded({Reading{}, first, last}).read_at == first.read_at);
}

TEST_CASE("a NaN in one of the tensors is not lost in folding") {
  at::Tensor bad = at::randn({4});
  bad[2] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor infinite = at::full({4}, std::numeric_limits<float>::infinity());
  for (const Reading& all :
       {folded({reading_of(bad), reading_of(at::randn({4}))}),
        folded({reading_of(at::randn({4})), reading_of(bad)}),
        folded({reading_of(infinite), reading_of(bad)}), folded({reading_of(bad), reading_of(infinite)})}) {
    const auto value = [&](Op op) { return all.stats.values[static_cast<std::size_t>(op)]; };
    CHECK(std::isnan(value(Op::min)));
    CHECK(std::isnan(value(Op::max)));
    CHECK(std::isnan(value(Op::norm)));
    CHECK(std::isnan(value(Op::mean)));
    CHECK(value(Op::nans) == 1);
  }
}

// Its records.
class Records : public RecordStream {
 public:
  std::vector<Record> all;

  std::uint32_t target_id(int, std::string_view) override { return 0; }
  std::uint32_t shape_id(std::string_view) override { return 0; }
  bool push(const Record& record) noexcept override { return all.push_back(record), true; }
  bool push(const Histogram&) noexcept override { return true; }
  void publish(Document, std::string) noexcept override {}
};

TEST_CASE("the record of a sample has its marks, without the scale of a gradient") {
  HookFuse fuse;
  Reading reading;
  ReadOptions options(0.1, 16);
  options.step = 3;
  const at::Tensor x = at::randn({1 << 20});
  reading.read(x, options, "x", fuse);
  const auto sample = reading.stats.sample;
  REQUIRE(sample.share > 0);
  CHECK(sample.norm_se > 0);
  reading.read(x.mul(1024), options, "x", fuse, 1024);
  Records stream;
  RowWriter rows(stream, Revision{1}, bit_of(Op::norm));
  rows.write({Kind::grad_reduced, 0, 0}, reading, "x");
  reading.read(at::ones({4}), options, "x", fuse);
  rows.write({Kind::grad_reduced, 0, 1}, reading, "x");
  REQUIRE(stream.all.size() == 2);
  const auto value = [&](Column column) { return stream.all[0].values[static_cast<std::size_t>(column)]; };
  CHECK(stream.all[0].mask == (bit_of(Op::norm) | kSampleMarks));
  CHECK(value(Column::sampled) == sample.share);
  CHECK(std::fabs(value(Column::mean_se) - sample.mean_se) < 1e-9 * sample.mean_se);
  CHECK(std::fabs(value(Column::norm_se) - sample.norm_se) < 1e-9 * sample.norm_se);
  CHECK(stream.all[1].mask == bit_of(Op::norm));
}

TEST_CASE("a parameter that has a norm of a scalar, or the flight recorder, is read whole") {
  const ReadOptions options(0.1, 16);
  WatchedTensor parameter;
  const auto sample_for = [&](Readers readers) {
    parameter.readers[static_cast<std::size_t>(Kind::grad_reduced)] = readers;
    return options.for_rows(parameter, Kind::grad_reduced).sample;
  };
  CHECK(sample_for(kForRows) == 16);
  CHECK(sample_for(kForRows | kForReplicas) == 16);
  for (const Readers reader : {kForEachNorm, kForWholeNorm, kForWholeNormBetween, kForFlight})
    CHECK(sample_for(static_cast<Readers>(kForRows | reader)) == 1);
  CHECK(options.for_rows(parameter, Kind::param_origin).sample == 16);
}

TEST_CASE("folding nothing gives an empty reading") {
  CHECK_FALSE(folded({}).has_value);
  CHECK_FALSE(folded({Reading{}, Reading{}}).has_value);
}

TEST_CASE("one tensor that is not applicable makes the folded reading not applicable") {
  const Reading all =
      folded({reading_of(at::randn({4})), reading_of(at::empty({4}, at::TensorOptions(at::kMeta)))});
  CHECK(all.stats.outcome == TensorStats::Outcome::not_applicable);
}

TEST_CASE("the time of a body is counted and that of a nested body only once") {
  HookFuse fuse;
  REQUIRE(fuse.hook_time() == milliseconds{0});
  const auto begun = steady_clock::now();
  fuse.guard("outer", [&] { fuse.guard("inner", [] { busy_wait(milliseconds{2}); }); });
  const auto all = steady_clock::now() - begun;
  REQUIRE(fuse.hook_time() >= milliseconds{2});
  REQUIRE(fuse.hook_time() <= all);
}

TEST_CASE("the time of a body that throws is counted and later bodies are counted right") {
  HookFuse fuse;
  const auto begun = steady_clock::now();
  fuse.guard("outer", [&] {
    fuse.guard("inner", [] { throw std::runtime_error("no"); });
    busy_wait(milliseconds{1});
  });
  const auto between = fuse.hook_time();
  REQUIRE(between >= milliseconds{1});
  fuse.guard("next", [] { busy_wait(milliseconds{1}); });
  REQUIRE(fuse.hook_time() >= between + milliseconds{1});
  REQUIRE(fuse.hook_time() <= steady_clock::now() - begun);
  REQUIRE(fuse.failure()->cause == "no");
}

TEST_CASE("only the first failure is recorded and with the first line of its cause") {
  HookFuse fuse;
  CHECK_FALSE(fuse.failure());
  fuse.guard("first", [] { throw std::runtime_error("a reason\nand a backtrace"); });
  fuse.guard("second", [] { throw std::runtime_error("another"); });
  REQUIRE(fuse.failure());
  CHECK(fuse.failure()->target == "first");
  CHECK(fuse.failure()->cause == "a reason");
}

TEST_CASE("a step that has as many things as its limit is full, and so is a later one") {
  StepLimit limit(2, "rows");
  for (int step = 0; step < 2; ++step) {
    CHECK_FALSE(limit.reached(0));
    CHECK_FALSE(limit.reached(1));
    CHECK(limit.reached(2));
    CHECK(limit.reached(3));
  }
}

}  // namespace
}  // namespace gradmon
