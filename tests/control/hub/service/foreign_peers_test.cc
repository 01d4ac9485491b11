// SPDX-License-Identifier: Apache-2.0
#include "control/hub/service/foreign_peers.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr char kOwn[] = "0123456789abcdef";
constexpr char kOld[] = "fedcba9876543210";

Envelope hello_of(const std::string& launch) {
  Hello hello;
  hello.launch_id = launch;
  hello.pid = 77;
  hello.host = "far";
  return {"", Rank{3}, 0, hello};
}

TEST_CASE("a process of an earlier launch is named once in the log and stays in the status while it speaks") {
  ForeignPeers strangers(kOwn, "second");
  const Envelope old{kOld, Rank{1}, 1, Progress{}};
  const std::string line = "rank 1 of an earlier launch (epoch fedcba98) still runs";
  CHECK(strangers.hear(old, Ticks{1000}) == line);
  CHECK_FALSE(strangers.hear(old, Ticks{9000}));
  CHECK(strangers.heard(Ticks{18000}) == std::vector<std::string>{line});
  CHECK(strangers.heard(Ticks{19000}).empty());
}

TEST_CASE("a process of another launch that asks to join is named with its pid") {
  ForeignPeers strangers(kOwn, "second");
  CHECK(strangers.hear(hello_of("first"), Ticks{0}) ==
        "rank 3 of another launch (\"first\", pid 77 on far) asks to join");
}

TEST_CASE("whoever is of this job is no stranger") {
  ForeignPeers strangers(kOwn, "second");
  CHECK_FALSE(strangers.hear(hello_of("second"), Ticks{0}));
  CHECK_FALSE(strangers.hear({kOwn, Rank{1}, 1, Progress{}}, Ticks{0}));
  CHECK(strangers.heard(Ticks{0}).empty());
}

TEST_CASE("whoever has joined no launch yet is of no earlier one") {
  ForeignPeers strangers(kOwn, "second");
  CHECK_FALSE(strangers.hear({"", Rank{1}, 0, Progress{}}, Ticks{0}));
  CHECK(strangers.heard(Ticks{0}).empty());
}

TEST_CASE("a flood of made-up strangers fills no memory") {
  ForeignPeers strangers(kOwn, "second");
  for (int i = 0; i < 1000; ++i) strangers.hear({std::to_string(i), Rank{1}, 1, Progress{}}, Ticks{0});
  CHECK(strangers.heard(Ticks{0}).size() == 16);
}

}  // namespace
}  // namespace gradmon
