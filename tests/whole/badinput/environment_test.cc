// SPDX-License-Identifier: Apache-2.0
// What the environment may say of ranks.
#include <map>

#include "control/debian_version.h"
#include "runtime/job/environment.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

std::string said_of(std::map<std::string, std::string> variables) {
  const auto read = read_environment([&](const char* name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  });
  return read ? "rank " + std::to_string(read->rank) + " of " + std::to_string(read->world_size)
              : read.error();
}

}  // namespace

TEST_CASE("RANK absent or no number or too large: a single rank or refused with the reason") {
  CHECK(said_of({}) == "rank 0 of 1");
  CHECK(said_of({{"WORLD_SIZE", "1"}}) == "rank 0 of 1");
  CHECK(said_of({{"WORLD_SIZE", "2"}}) == "WORLD_SIZE=\"2\" without RANK");
  CHECK(said_of({{"RANK", "abc"}, {"WORLD_SIZE", "2"}}) == "RANK=\"abc\": expected an integer >= 0");
  CHECK(said_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}) == "RANK=\"2\": expected less than WORLD_SIZE (2)");
  CHECK(said_of({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}) == "RANK=\"-1\": expected an integer >= 0");
  CHECK(said_of({{"RANK", "1"}, {"WORLD_SIZE", "many"}}) == "WORLD_SIZE=\"many\": expected an integer >= 1");
}

}  // namespace gradmon
