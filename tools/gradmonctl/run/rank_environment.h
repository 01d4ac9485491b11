// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradmon {

// The values that all ranks of one launch share.
struct LaunchIdentity {
  int ranks = 1;
  int master_port = 0;
  std::string run_id;  // GRADMON_RUN_ID: 32 hex digits
};

// A TCP port that was free on 127.0.0.1 a moment ago, if possible outside the range that the system assigns
// for port 0: rank 0 binds it only seconds later.
tl::expected<int, std::string> free_port();

// The environment of one rank, as "NAME=VALUE": `inherited` with RANK,
// WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
// GRADMON_RUN_ID replaced, and USE_LIBUV=0 and DYNAMIC_MONITOR=True if they are not set.
std::vector<std::string> rank_environment(const std::vector<std::string>& inherited, int rank,
                                          const LaunchIdentity& launch);

}  // namespace gradmon
