// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/hook_fuse.h"

#include <stdexcept>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

void busy_wait(milliseconds time) {
  const auto until = steady_clock::now() + time;
  while (steady_clock::now() < until) continue;
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

}  // namespace
}  // namespace gradmon
