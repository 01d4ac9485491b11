// SPDX-License-Identifier: Apache-2.0
#include "control/host/token_bucket.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;

TEST_CASE("an empty bucket is refilled at its rate and says when a token is due") {
  TokenBucket::Clock::time_point now{std::chrono::hours(1)};
  TokenBucket bucket({10, 3}, now);
  for (int i = 0; i < 3; ++i) CHECK(bucket.try_take(now));
  CHECK_FALSE(bucket.try_take(now));
  CHECK(bucket.next() == now + milliseconds(100));
  CHECK(bucket.try_take(now += milliseconds(101)));
  now += std::chrono::hours(1);
  for (int i = 0; i < 3; ++i) CHECK(bucket.try_take(now));
  CHECK_FALSE(bucket.try_take(now));
}

TEST_CASE("a bucket without a rate is never refilled") {
  TokenBucket::Clock::time_point now{std::chrono::hours(1)};
  TokenBucket bucket({0, 1}, now);
  CHECK(bucket.next() == now);
  CHECK(bucket.try_take(now));
  CHECK_FALSE(bucket.try_take(now += std::chrono::hours(1)));
  CHECK(bucket.next() == TokenBucket::Clock::time_point::max());
}

}  // namespace
}  // namespace gradmon
