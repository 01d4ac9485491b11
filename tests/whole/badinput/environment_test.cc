// SPDX-License-Identifier: Apache-2.0
// Rank and world size from environment variables.
#include <map>

#include "control/debian_version.h"
#include "runtime/job/environment.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

std::string rank_or_error(std::map<std::string, std::string> variables) {
  const auto read = read_environment([&](const char* name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  });
  return read ? "rank " + std::to_string(read->rank) + " of " + std::to_string(read->world_size)
              : read.error();
}

}  // namespace

TEST_CASE("without RANK and WORLD_SIZE there is one rank and invalid values are refused with the reason") {
  CHECK(rank_or_error({}) == "rank 0 of 1");
  CHECK(rank_or_error({{"WORLD_SIZE", "1"}}) == "rank 0 of 1");
  CHECK(rank_or_error({{"WORLD_SIZE", "2"}}) == "WORLD_SIZE=\"2\" without RANK");
  CHECK(rank_or_error({{"RANK", "abc"}, {"WORLD_SIZE", "2"}}) == "RANK=\"abc\": expected an integer >= 0");
  CHECK(rank_or_error({{"RANK", "2"}, {"WORLD_SIZE", "2"}}) ==
        "RANK=\"2\": expected less than WORLD_SIZE (2)");
  CHECK(rank_or_error({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}) == "RANK=\"-1\": expected an integer >= 0");
  CHECK(rank_or_error({{"RANK", "1"}, {"WORLD_SIZE", "many"}}) ==
        "WORLD_SIZE=\"many\": expected an integer >= 1");
}

}  // namespace gradmon
