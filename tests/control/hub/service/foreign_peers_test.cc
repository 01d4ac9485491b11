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

TEST_CASE("a process of an earlier launch is logged once and stays in the status while it sends") {
  ForeignPeers foreign_peers(kOwn, "second");
  const Envelope old{kOld, Rank{1}, 1, Progress{}};
  const std::string line = "rank 1 of an earlier launch (epoch fedcba98) still runs";
  CHECK(foreign_peers.hear(old, Ticks{1000}) == line);
  CHECK_FALSE(foreign_peers.hear(old, Ticks{9000}));
  CHECK(foreign_peers.heard(Ticks{18000}) == std::vector<std::string>{line});
  CHECK(foreign_peers.heard(Ticks{19000}).empty());
}

TEST_CASE("a process of another launch that asks to join is named with its pid") {
  ForeignPeers foreign_peers(kOwn, "second");
  CHECK(foreign_peers.hear(hello_of("first"), Ticks{0}) ==
        "rank 3 of another launch (\"first\", pid 77 on far) asks to join");
}

TEST_CASE("a process of this job is not a foreign peer") {
  ForeignPeers foreign_peers(kOwn, "second");
  CHECK_FALSE(foreign_peers.hear(hello_of("second"), Ticks{0}));
  CHECK_FALSE(foreign_peers.hear({kOwn, Rank{1}, 1, Progress{}}, Ticks{0}));
  CHECK(foreign_peers.heard(Ticks{0}).empty());
}

TEST_CASE("a process that has not joined any launch yet is not a foreign peer") {
  ForeignPeers foreign_peers(kOwn, "second");
  CHECK_FALSE(foreign_peers.hear({"", Rank{1}, 0, Progress{}}, Ticks{0}));
  CHECK(foreign_peers.heard(Ticks{0}).empty());
}

TEST_CASE("at most 16 foreign peers are remembered") {
  ForeignPeers foreign_peers(kOwn, "second");
  for (int i = 0; i < 1000; ++i) foreign_peers.hear({std::to_string(i), Rank{1}, 1, Progress{}}, Ticks{0});
  CHECK(foreign_peers.heard(Ticks{0}).size() == 16);
}

TEST_CASE("a foreign peer is named however many fell silent before") {
  ForeignPeers foreign_peers(kOwn, "second");
  for (int i = 0; i < 16; ++i) foreign_peers.hear({std::to_string(i), Rank{1}, 1, Progress{}}, Ticks{0});
  CHECK_FALSE(foreign_peers.hear(hello_of("first"), Ticks{9'000}));
  CHECK(foreign_peers.hear(hello_of("first"), Ticks{20'000}));
  CHECK(foreign_peers.heard(Ticks{20'000}).size() == 1);
}

}  // namespace
}  // namespace gradmon
