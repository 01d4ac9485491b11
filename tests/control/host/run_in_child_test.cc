// SPDX-License-Identifier: Apache-2.0
#include "control/host/run_in_child.h"

#include <poll.h>
#include <sys/wait.h>

#include <cerrno>
#include <stdexcept>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("a result comes back whole and an exception gives no result") {
  const std::string large(1 << 20, '\0');
  CHECK(run_in_child([&] { return large; }, seconds(20)) == large);
  CHECK(run_in_child([] { return std::string(); }, seconds(20)) == "");
  CHECK_FALSE(run_in_child([]() -> std::string { throw std::runtime_error("no"); }, seconds(20)));
  CHECK_FALSE(run_in_child([]() -> std::string { throw 1; }, seconds(20)));
}

TEST_CASE("work that hangs is ended at the timeout") {
  const auto hangs = [] {
    ::poll(nullptr, 0, -1);
    return std::string();
  };
  // Repeated: it waits for the end of the killed child only briefly.
  CHECK(eventually([&] {
    const auto begun = std::chrono::steady_clock::now();
    CHECK_FALSE(run_in_child(hangs, milliseconds(50)));
    CHECK(std::chrono::steady_clock::now() - begun < seconds(10));
    const bool none_left = ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD;
    while (::waitpid(-1, nullptr, 0) > 0) {
    }
    return none_left;
  }));
}

}  // namespace
}  // namespace gradmon
