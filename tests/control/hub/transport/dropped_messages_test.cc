// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/dropped_messages.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("dropped messages are logged at most once a minute") {
  DroppedMessages dropped;
  const auto start = DroppedMessages::Clock::now();
  CHECK(dropped.warning().empty());
  CHECK(dropped.count("a", start) == "1 message from the network dropped; the last: a");
  for (int i = 0; i < 1000; ++i) CHECK_FALSE(dropped.count("b", start + std::chrono::seconds(59)));
  CHECK(dropped.count("c", start + std::chrono::seconds(60)) ==
        "1002 messages from the network dropped; the last: c");
  CHECK(dropped.warning() == "1002 messages from the network dropped; the last: c");
}

}  // namespace
}  // namespace gradmon
