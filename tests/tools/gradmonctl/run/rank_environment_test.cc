// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/run/rank_environment.h"

#include <algorithm>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "control/host/process_identity.h"

namespace gradmon {
namespace {

bool has(const std::vector<std::string>& environment, const std::string& entry) {
  return std::count(environment.begin(), environment.end(), entry) == 1;
}

TEST_CASE("a rank is told what torchrun would tell it") {
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

TEST_CASE("DYNAMIC_MONITOR stays as the user has set it, also where that is empty") {
  CHECK(has(rank_environment({"DYNAMIC_MONITOR=0"}, 0, {1, 1, "id"}), "DYNAMIC_MONITOR=0"));
  CHECK(has(rank_environment({"DYNAMIC_MONITOR="}, 0, {1, 1, "id"}), "DYNAMIC_MONITOR="));
}

TEST_CASE("USE_LIBUV stays as the user has set it") {
  CHECK(has(rank_environment({"USE_LIBUV=1"}, 0, {1, 1, "id"}), "USE_LIBUV=1"));
}

TEST_CASE("a variable may hold equals signs and nothing") {
  const auto variables = rank_environment({"A=b=c", "EMPTY="}, 0, {1, 1, "id"});
  CHECK(has(variables, "A=b=c"));
  CHECK(has(variables, "EMPTY="));
}

TEST_CASE("a random id has 32 hex digits and does not come twice") {
  const std::string id = random_hex(16);
  CHECK(id.size() == 32);
  CHECK(id.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(id != random_hex(16));
}

TEST_CASE("a free port can be had") {
  const auto port = free_port();
  REQUIRE(port);
  CHECK(*port > 0);
  CHECK(*port < 65536);
}

}  // namespace
}  // namespace gradmon
