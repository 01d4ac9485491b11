// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/run/rank_environment.h"

#include <algorithm>
#include <fstream>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

bool has(const std::vector<std::string>& environment, const std::string& entry) {
  return std::count(environment.begin(), environment.end(), entry) == 1;
}

TEST_CASE("a rank gets the variables of torchrun and of gradmon") {
  const auto variables =
      rank_environment({"PATH=/bin", "RANK=9", "MASTER_ADDR=elsewhere"}, 2, {4, 1234, "id"});
  for (const char* entry :
       {"PATH=/bin", "RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1",
        "MASTER_PORT=1234", "GRADMON_RUN_ID=id", "USE_LIBUV=0", "DYNAMIC_MONITOR=True"}) {
    CAPTURE(entry);
    CHECK(has(variables, entry));
  }
  CHECK(variables.size() == 10);
}

TEST_CASE("DYNAMIC_MONITOR stays as the user has set it even if it is empty") {
  CHECK(has(rank_environment({"DYNAMIC_MONITOR=0"}, 0, {1, 1, "id"}), "DYNAMIC_MONITOR=0"));
  CHECK(has(rank_environment({"DYNAMIC_MONITOR="}, 0, {1, 1, "id"}), "DYNAMIC_MONITOR="));
}

TEST_CASE("USE_LIBUV stays as the user has set it") {
  CHECK(has(rank_environment({"USE_LIBUV=1"}, 0, {1, 1, "id"}), "USE_LIBUV=1"));
}

TEST_CASE("the value of a variable may contain equals signs or be empty") {
  const auto variables = rank_environment({"A=b=c", "EMPTY="}, 0, {1, 1, "id"});
  CHECK(has(variables, "A=b=c"));
  CHECK(has(variables, "EMPTY="));
}

TEST_CASE("free_port returns a port that the system gives to nobody who asks for any") {
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int lowest = 0;
  REQUIRE(range >> lowest);
  const auto port = free_port();
  REQUIRE(port);
  if (lowest > 10'000) CHECK(*port >= 10'000);
  if (lowest > 20'000) CHECK(*port < lowest);
}

}  // namespace
}  // namespace gradmon
