// SPDX-License-Identifier: Apache-2.0
#include "control/host/rate_limits.h"

#include <memory>

#include "control/host/mailbox.h"
#include "tests/support/catch.h"

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

TEST_CASE("tasks are taken once and in order") {
  Mailbox mailbox;
  std::string done;
  mailbox.post([&] { done += "a"; });
  mailbox.post([&] { done += "b"; });
  for (const Mailbox::Task& task : mailbox.take()) task();
  CHECK(done == "ab");
  CHECK(mailbox.take().empty());
}

TEST_CASE("a closed mailbox drops its tasks and all later ones") {
  Mailbox mailbox;
  const auto held = std::make_shared<int>(0);
  mailbox.post([held] {});
  mailbox.close();
  CHECK(held.use_count() == 1);
  mailbox.post([held] {});
  CHECK(held.use_count() == 1);
  CHECK(mailbox.take().empty());
}

}  // namespace
}  // namespace gradmon
