// SPDX-License-Identifier: Apache-2.0
#include "runtime/environment.h"

#include <map>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Variables = std::map<std::string, std::string>;

tl::expected<Environment, std::string> read(const Variables& variables) {
  return read_environment([&](const char* name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  });
}

TEST_CASE("nothing set is a single rank in static mode with the default directory") {
  const auto environment = read({});
  REQUIRE(environment->rank == 0);
  REQUIRE(environment->world_size == 1);
  REQUIRE_FALSE(environment->dynamic);
  REQUIRE(environment->output_dir == "./monitor_output");
  REQUIRE(environment->launcher_id.empty());
}

TEST_CASE("a key directory is named by its path which becomes absolute") {
  REQUIRE(read({{"GRADMON_KEYS", "/etc/keys"}})->keys == "/etc/keys");
  REQUIRE(read({{"GRADMON_KEYS", "keys"}})->keys == std::filesystem::absolute("keys"));
  REQUIRE_FALSE(read({{"GRADMON_KEYS", ""}})->keys);
  REQUIRE_FALSE(read({})->keys);
}

TEST_CASE("rank and size are taken from the first launcher that tells them") {
  REQUIRE(read({{"RANK", "3"}, {"WORLD_SIZE", "8"}})->rank == 3);
  REQUIRE(read({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}})->rank == 5);
  REQUIRE(read({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}})->world_size == 2);
  const auto pmi = read({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}});
  REQUIRE(pmi->rank == 1);
  REQUIRE(pmi->source == "PMI_RANK and PMI_SIZE");
  REQUIRE(
      read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}})->world_size ==
      2);
}

TEST_CASE("a rank that cannot be is refused with its variable and value") {
  REQUIRE(read({{"RANK", "abc"}, {"WORLD_SIZE", "2"}}).error() == "RANK=\"abc\": expected an integer >= 0");
  REQUIRE(read({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).error() ==
          "RANK=\"2\": expected less than WORLD_SIZE (2)");
  REQUIRE(read({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}).error() == "RANK=\"-1\": expected an integer >= 0");
  REQUIRE(read({{"WORLD_SIZE", "2"}}).error() == "WORLD_SIZE=\"2\" without RANK");
  REQUIRE(read({{"WORLD_SIZE", "0"}}).error() == "WORLD_SIZE=\"0\": expected an integer >= 1");
  REQUIRE(read({{"WORLD_SIZE", "1"}})->world_size == 1);
}

TEST_CASE("DYNAMIC_MONITOR is read in any case") {
  for (const char* yes : {"True", "true", "TRUE"}) REQUIRE(read({{"DYNAMIC_MONITOR", yes}})->dynamic);
  for (const char* no : {"False", "", "1", "yes"}) REQUIRE_FALSE(read({{"DYNAMIC_MONITOR", no}})->dynamic);
}

TEST_CASE("a launch is named by what its launcher says and none counts as absent") {
  REQUIRE(read({{"GRADMON_RUN_ID", "g"}, {"TORCHELASTIC_RUN_ID", "t"}})->launcher_id == "g");
  REQUIRE(read({{"TORCHELASTIC_RUN_ID", "t"}, {"TORCHELASTIC_RESTART_COUNT", "2"}})->launcher_id == "t.2");
  REQUIRE(
      read({{"TORCHELASTIC_RUN_ID", "none"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}})->launcher_id ==
      "7.1");
  const std::string by_address = read({{"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}})->launcher_id;
  REQUIRE(by_address.rfind("h:29500:", 0) == 0);
  REQUIRE(by_address.size() > std::string("h:29500:").size());
}

TEST_CASE("training's store is where MASTER_ADDR and MASTER_PORT or GRADMON_STORE say") {
  const Variables training{{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};
  REQUIRE(read(training)->store->host == "node0");
  REQUIRE(read(training)->store->port == 29500);
  auto named = training;
  named["GRADMON_STORE"] = "other:1234";
  REQUIRE(read(named)->store->host == "other");
  REQUIRE(read(named)->store->port == 1234);
  named["GRADMON_STORE"] = "none";
  REQUIRE_FALSE(read(named)->store);
  REQUIRE_FALSE(read({})->store);
  REQUIRE_FALSE(read({{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "what"}})->store);
}

TEST_CASE("a store that cannot be is refused with what was expected") {
  REQUIRE(read({{"GRADMON_STORE", "here"}}).error() ==
          "GRADMON_STORE=\"here\": expected HOST:PORT of a TCPStore, or none");
  REQUIRE(read({{"GRADMON_STORE", "here:0"}}).error() == "GRADMON_STORE=\"0\": expected an integer >= 1");
  REQUIRE(read({{"GRADMON_STORE", "here:70000"}}).error() ==
          "GRADMON_STORE=\"70000\": expected at most 65535");
}

TEST_CASE("ranks on several hosts agree on the name of a launch that only its address tells") {
  const Variables launch{{"RANK", "3"},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "node0"},
                         {"MASTER_PORT", "29500"}};
  REQUIRE(read(launch)->launcher_id == "node0:29500");
}

}  // namespace
}  // namespace gradmon
