// SPDX-License-Identifier: Apache-2.0
#include "control/host/log_limiter.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::seconds;

TEST_CASE("the same text is logged once") {
  LogLimiter limiter;
  CHECK(limiter.allows("no id", seconds(0)));
  CHECK(limiter.allows("no id: no store", seconds(1)));
  for (int i = 2; i < 500; ++i)
    CHECK_FALSE(limiter.allows(i % 2 == 0 ? "no id" : "no id: no store", seconds(i)));
}

TEST_CASE("texts that vary are logged at most once a minute and at most 100 times") {
  LogLimiter limiter;
  int logged = 0;
  for (int i = 0; i < 600; ++i) logged += limiter.allows("port " + std::to_string(i), seconds(i)) ? 1 : 0;
  CHECK(logged == 11);
  for (int i = 600; i < 10'000; ++i)
    logged += limiter.allows("port " + std::to_string(i), seconds(i)) ? 1 : 0;
  CHECK(logged == 100);
}

TEST_CASE("a text that must wait is logged after a minute") {
  LogLimiter limiter;
  CHECK(limiter.allows("a", seconds(0)));
  CHECK(limiter.allows("b", seconds(1)));
  CHECK_FALSE(limiter.allows("c", seconds(60)));
  CHECK(limiter.allows("c", seconds(61)));
}

}  // namespace
}  // namespace gradmon
