// SPDX-License-Identifier: Apache-2.0
#include "control/host/answer_in_time.h"

#include <poll.h>

#include <stdexcept>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("an answer comes back whole, and none is none") {
  const std::string large(1 << 20, '\0');
  CHECK(answer_in_time([&] { return large; }, seconds(20)) == large);
  CHECK(answer_in_time([] { return std::string(); }, seconds(20)) == "");
  CHECK_FALSE(answer_in_time([]() -> std::string { throw std::runtime_error("no"); }, seconds(20)));
}

TEST_CASE("work that hangs is waited for so long and no longer") {
  const auto begun = std::chrono::steady_clock::now();
  CHECK_FALSE(answer_in_time(
      [] {
        ::poll(nullptr, 0, -1);
        return std::string();
      },
      milliseconds(50)));
  CHECK(std::chrono::steady_clock::now() - begun < seconds(10));
}

}  // namespace
}  // namespace gradmon
