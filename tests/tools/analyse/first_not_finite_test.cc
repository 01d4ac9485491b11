// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/first_not_finite.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/analyse/rank_writer.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

Row row_of(const std::vector<std::pair<Op, double>>& values, const char* dtype = "torch.float32",
           const char* shape = "[4]") {
  Row row;
  row.dtype = dtype;
  row.shape = shape;
  for (const auto& [op, value] : values) {
    row.values[field_of(op)] = value;
    row.mask |= 1U << field_of(op);
  }
  return row;
}

TEST_CASE("a NaN is found by its count or by any statistic") {
  CHECK(not_finite_in(row_of({{Op::nans, 2}, {Op::norm, kNan}})).what == NotFinite::nan);
  CHECK(not_finite_in(row_of({{Op::nans, 2}})).field == field_of(Op::nans));
  CHECK(not_finite_in(row_of({{Op::norm, kNan}})).what == NotFinite::nan);
  CHECK(not_finite_in(row_of({{Op::norm, 1}, {Op::nans, 0}})).what == NotFinite::none);
}

TEST_CASE("a NaN of infinities that cancel is an infinity") {
  CHECK(not_finite_in(row_of({{Op::min, -kInf}, {Op::max, kInf}, {Op::mean, kNan}, {Op::nans, 0}})).what ==
        NotFinite::infinite);
  CHECK(not_finite_in(row_of({{Op::mean, kNan}, {Op::nans, 0}})).what == NotFinite::infinite);
  CHECK(not_finite_in(row_of({{Op::mean, kNan}, {Op::norm, kInf}})).what == NotFinite::infinite);
  CHECK(not_finite_in(row_of({{Op::norm, kInf}})).what == NotFinite::infinite);
  CHECK(not_finite_in(row_of({{Op::max, kInf}, {Op::norm, kInf}})).field == field_of(Op::max));
  INFO("no other statistic tells whether it is one");
  CHECK(not_finite_in(row_of({{Op::mean, kNan}})).what == NotFinite::nan);
}

// Squares do not cancel, and an extreme is NaN for a NaN only.
TEST_CASE("a norm or an extreme that is NaN is a NaN whatever the count says") {
  for (const Op op : {Op::norm, Op::min, Op::max, Op::absmax}) {
    const NotFiniteField found = not_finite_in(row_of({{op, kNan}, {Op::mean, kInf}, {Op::nans, 0}}));
    CHECK(found.what == NotFinite::nan);
    CHECK(found.field == field_of(op));
  }
}

TEST_CASE("a sum of finite elements that is not finite is an overflow") {
  const auto what = [](std::vector<std::pair<Op, double>> values) {
    return not_finite_in(row_of(std::move(values))).what;
  };
  CHECK(what({{Op::min, -1e200}, {Op::max, 1e200}, {Op::norm, kInf}}) == NotFinite::overflow);
  CHECK(what({{Op::absmax, 1e308}, {Op::mean, kNan}, {Op::norm, kInf}}) == NotFinite::overflow);
  CHECK(what({{Op::absmax, kInf}, {Op::norm, kInf}}) == NotFinite::infinite);
  INFO("the other end may be infinite");
  CHECK(what({{Op::max, 1e200}, {Op::norm, kInf}}) == NotFinite::infinite);
  CHECK(std::string(text_of(NotFinite::overflow)) == "an overflow");
}

TEST_CASE("a NaN that has another reason is none") {
  CHECK(not_finite_in(row_of({{Op::zeros, kNan}, {Op::norm, 1}})).what == NotFinite::none);
  CHECK(not_finite_in(row_of({{Op::min, kNan}, {Op::norm, 1}}, "torch.complex64")).what == NotFinite::none);
  CHECK(not_finite_in(row_of({{Op::norm, kNan}}, "torch.complex64")).what == NotFinite::nan);
  CHECK(not_finite_in(row_of({{Op::mean, kNan}}, "torch.bool")).what == NotFinite::none);
  CHECK(not_finite_in(row_of({{Op::mean, kNan}}, "torch.float32", "[4, 0]")).what == NotFinite::none);
  CHECK(not_finite_in(row_of({{Op::mean, kNan}}, "torch.float32", "[40]")).what == NotFinite::nan);
  CHECK(not_finite_in(Row()).what == NotFinite::none);
}

struct Found {
  FirstNotFinite first;
  NotFiniteContext around;
};

Found find_in(const TemporaryDirectory& output) {
  Problems problems;
  const auto run = find_run(output.path(), "", problems);
  REQUIRE(run);
  Found found;
  found.first = find_first_not_finite(*run, problems);
  if (found.first.first) found.around = context_of(*run, found.first, problems);
  CHECK(problems.count() == 0);
  return found;
}

// All rows of a step of a model with two layers; `actv` is the norm of the second layer's output.
std::vector<TestRow> step_rows(double actv, double gradient) {
  return {{Kind::actv, "l0.output", 1},
          {Kind::actv, "l1.output", actv},
          {Kind::actv, "l2.output", actv},
          {Kind::actv_grad, "l1.output", gradient},
          {Kind::actv_grad, "l0.output", gradient},
          {Kind::grad_reduced, "l0.weight", gradient},
          {Kind::grad_reduced, "l1.weight", gradient}};
}

TEST_CASE("a planted NaN is found with its step and rank and tensor and what was around it") {
  const TemporaryDirectory output;
  for (int rank = 0; rank < 3; ++rank) {
    RankWriter writer(output.path(), rank);
    for (int step = 0; step < 10; ++step) {
      const bool bad = step >= 7 && rank == 1;
      writer.write(step, step_rows(bad ? kNan : 1.0 + step, bad || step >= 8 ? kNan : 1));
    }
  }
  const Found found = find_in(output);
  REQUIRE(found.first.first);
  const NotFinitePlace& place = *found.first.first;
  CHECK(place.order.step == 7);
  CHECK(place.rank == 1);
  CHECK(place.kind == Kind::actv);
  CHECK(place.name == "l1.output");
  CHECK(place.micro_step == 0);
  CHECK(place.order.phase == Phase::forward);
  CHECK(place.what == NotFinite::nan);
  CHECK(place.line == 3);
  CHECK(place.file.filename() == "actv_7-7.csv");
  CHECK(found.first.by_rank.at(0).order.step == 8);
  CHECK(found.first.by_rank.at(0).kind == Kind::actv_grad);

  const NotFiniteContext& around = found.around;
  REQUIRE(around.history.size() == 8);
  CHECK(around.history.front().step == 2);
  CHECK(around.history[4].values[field_of(Op::norm)] == 7);
  CHECK(around.history[5].step == 7);
  CHECK(around.history.back().step == 9);
  REQUIRE(around.neighbours.size() == 3);
  CHECK(around.place == 1);
  CHECK(around.neighbours.front().name == "l0.output");
  CHECK(around.ranks == std::map<int, bool>{{0, false}, {2, false}});
  CHECK(around.spread.at(7).not_finite == 6);
  CHECK(around.spread.at(7).rows == 21);
  CHECK(around.spread.at(8).not_finite == 2 * 4 + 6);
}

TEST_CASE("rows of ranks with different numbers of rows are in the order of their step") {
  const TemporaryDirectory output;
  for (const int rank : {0, 1}) {
    RankWriter writer(output.path(), rank);
    Layout layout = writer.layout();
    layout.step_count_per_record = 100;
    writer.begin(layout);
    for (int step = 0; step < 4; ++step) {
      std::vector<TestRow> rows;
      for (int i = 0; i < (rank == 0 ? 6 : 4); ++i) {
        const bool bad = step == 3 && i == (rank == 0 ? 1 : 3);
        rows.push_back({Kind::actv, "l" + std::to_string(i), bad ? kNan : 1});
      }
      writer.write(step, rows);
    }
  }
  const Found found = find_in(output);
  REQUIRE(found.first.first);
  CHECK(found.first.first->rank == 0);
  CHECK(found.first.first->name == "l1");
}

TEST_CASE("all values finite is no find") {
  const TemporaryDirectory output;
  RankWriter writer(output.path(), 0);
  writer.write(0, step_rows(1, 1));
  const Found found = find_in(output);
  CHECK(!found.first.first);
  CHECK(found.first.extent.rows == 7);
}

TEST_CASE("a backward pass comes after the forward pass of its micro step and before that of the next one") {
  const TemporaryDirectory output;
  RankWriter writer(output.path(), 0);
  writer.write(4, {{Kind::actv, "a", 1, 0},
                   {Kind::actv, "a", kNan, 1},
                   {Kind::actv_grad, "b", 1, 1},
                   {Kind::actv_grad, "b", kNan, 0}});
  CHECK(find_in(output).first.first->kind == Kind::actv_grad);
}

TEST_CASE("what the step begins with comes before its forward pass") {
  const TemporaryDirectory output;
  RankWriter writer(output.path(), 0);
  writer.write(4,
               {{Kind::actv, "a", kNan}, {Kind::grad_reduced, "w", kNan}, {Kind::param_origin, "w", kNan}});
  CHECK(find_in(output).first.first->kind == Kind::param_origin);
}

TEST_CASE("model chunks rise in the forward pass and fall in the backward pass") {
  const auto first_of = [](Kind kind) {
    const TemporaryDirectory output;
    RankWriter(output.path(), 0).write(4, {{kind, "a", kNan, 0, 0}, {kind, "b", kNan, 0, 1}});
    RankWriter(output.path(), 1).write(4, {{kind, "c", kNan, 0, 1}});
    return find_in(output).first.first->name;
  };
  CHECK(first_of(Kind::actv) == "a");
  CHECK(first_of(Kind::actv_grad) == "c");
}

TEST_CASE("an infinity before the first NaN is the first value and the NaN is found too") {
  const TemporaryDirectory output;
  RankWriter writer(output.path(), 0);
  for (int step = 0; step < 20; ++step)
    writer.write(step, {{Kind::actv, "b", step > 3 ? kInf : 1}, {Kind::actv, "a", step == 15 ? kNan : 1}});
  const Found found = find_in(output);
  CHECK(found.first.first->what == NotFinite::infinite);
  CHECK(found.first.first->order.step == 4);
  REQUIRE(found.first.first_nan);
  CHECK(found.first.first_nan->name == "a");
  CHECK(found.first.first_nan->order.step == 15);
}

TEST_CASE("what is infinite from the first collected step on is left out, as long as it is infinite") {
  const TemporaryDirectory output;
  for (int rank = 0; rank < 2; ++rank) {
    RankWriter writer(output.path(), rank);
    for (int step = 4; step < 20; ++step) {
      writer.write(step, {{Kind::actv, "mask", kInf, 0},
                          {Kind::actv, "mask", kInf, 1},
                          {Kind::actv, "ends", step < 9 ? kInf : 1},
                          {Kind::actv, "nan", step < 15 ? kInf : kNan},
                          {Kind::actv, "begins", step > 12 ? kInf : 1}});
    }
  }
  const Found found = find_in(output);
  CHECK(found.first.first->name == "ends");
  CHECK(found.first.first->order.step == 4);
  CHECK(found.first.first_nan->name == "nan");
  REQUIRE(found.first.always_infinite.size() == 4);
  CHECK(found.first.always_infinite.count({1, Kind::actv, 0, "mask"}) == 1);
  CHECK(found.around.spread.at(4).not_finite == 2);
  CHECK(found.around.spread.at(4).rows == 10);
}

TEST_CASE("the last step that there can be is a step like any other") {
  const TemporaryDirectory output;
  const auto directory = output / "Nov24_12-04-37-rank0-0a1b2c3d";
  std::filesystem::create_directory(directory);
  write_text(directory / "actv_0-9223372036854775807.csv", "name,step,norm\na,9223372036854775807,nan\n");
  const Found found = find_in(output);
  CHECK(found.first.first->order.step == std::numeric_limits<std::int64_t>::max());
  CHECK(found.around.history.size() == 1);
  CHECK(found.around.spread.size() == 1);
}

TEST_CASE("files of msprobe are read and their rows of absent tensors are no NaN") {
  const TemporaryDirectory output;
  const auto directory = output / "Nov24_12-04-37-rank0-0a1b2c3d";
  std::filesystem::create_directory(directory);
  write_text(directory / "actv_grad_1-1.csv",
             "vpp_stage,name,step,micro_step,norm,min,max,mean,nans,zeros,shape,dtype\n"
             "0,fc1.input,1,0,nan,nan,nan,nan,nan,nan,nan,nan\n"
             "0,fc2.input,1,0,6.653186,-2.491939,1.724086,0.034626,0.0,nan,\"[5, 8]\",torch.float32\n");
  CHECK(!find_in(output).first.first);
  write_text(directory / "actv_grad_2-2.csv",
             "vpp_stage,name,step,micro_step,norm,min,max,mean,nans,zeros,shape,dtype\n"
             "0,fc1.input,2,0,nan,nan,nan,nan,nan,nan,nan,nan\n"
             "0,fc2.input,2,0,nan,nan,nan,nan,3,0.0,\"[5, 8]\",torch.float32\n");
  CHECK(find_in(output).first.first->name == "fc2.input");
}

}  // namespace

}  // namespace gradmon
