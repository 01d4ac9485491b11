// SPDX-License-Identifier: Apache-2.0
#include "control/text/alert_words.h"

#include <cmath>
#include <limits>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("a number has so many digits, and NaN has no sign") {
  CHECK(number_text(24.4123, 3) == "24.4");
  CHECK(number_text(0.0861, 3) == "0.0861");
  CHECK(number_text(-std::numeric_limits<double>::infinity(), 3) == "-inf");
  CHECK(number_text(std::nan(""), 3) == "nan");
  CHECK(number_text(-std::nan(""), 6) == "nan");
}

TEST_CASE("a series is named as people name it") {
  CHECK(series_text("0:head.weight/rank0/post_grad", "norm") == "gradient norm of head.weight");
  CHECK(series_text("0:head.weight/rank0/acc_grad", "norm") == "unreduced gradient norm of head.weight");
  CHECK(series_text("0:head.weight:2/rank0/pre_grad", "max") ==
        "unreduced gradient max of head.weight in micro step 2");
  CHECK(series_text("0:fc1.output:0/rank12/actv", "mean") == "mean of fc1.output");
  CHECK(series_text("0:fc1.output:0/rank12/actv_grad", "norm") == "gradient norm of fc1.output");
  CHECK(series_text("1:w/rank3/param_origin", "norm") == "weight norm of 1:w");
  CHECK(series_text("0:w/rank3/exp_avg_sq", "norm") == "exp_avg_sq norm of w");
  CHECK(series_text("0:loss/rank0/scalar", "value") == "loss");
}

TEST_CASE("a tag of another form is its own name") {
  for (const char* tag : {"", "/", "//", "/rank0/actv", "no tag", "a/b", "evil\n"})
    CHECK(series_text(tag, "norm") == tag);
  CHECK(series_text(":3/rank0/actv", "norm") == "norm of :3");
}

}  // namespace
}  // namespace gradmon
