// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/not_finite.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "control/debian_version.h"
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

}  // namespace
}  // namespace gradmon
