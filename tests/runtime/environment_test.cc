// SPDX-License-Identifier: Apache-2.0
#include "runtime/environment.h"

#include <filesystem>
#include <map>

#include "tests/support/catch.h"

namespace gradmon {
namespace {

using Variables = std::map<std::string, std::string>;

tl::expected<Environment, std::string> read(const Variables& variables) {
  return read_environment([&](const char* name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  });
}

TEST_CASE("an empty environment is a single rank in static mode with the default directory") {
  const auto environment = read({});
  REQUIRE(environment->rank == Rank{0});
  REQUIRE(environment->world_size == 1);
  REQUIRE_FALSE(environment->dynamic);
  REQUIRE(environment->output_dir == "monitor_output");
}

TEST_CASE("a job without a name is named after the script or module that Python runs or else the program") {
  const auto name = [](const std::vector<std::string>& words) {
    std::string all;
    for (const std::string& word : words) all += word + '\0';
    return program_name(all);
  };
  CHECK(name({"/usr/bin/python3", "-u", "src/train.py", "--steps", "3"}) == "train.py");
  CHECK(name({"python3.11", "-X", "dev", "-W", "error", "train.py"}) == "train.py");
  CHECK(name({"python", "-m", "project.train", "-c"}) == "project.train");
  CHECK(name({"python3", "-c", "import gradmon", "train.py"}) == "python3");
  CHECK(name({"python3"}) == "python3");
  CHECK(name({"./build/train", "-m", "x"}) == "train");
  CHECK(name({}).empty());
}

TEST_CASE("the path of the key directory becomes absolute") {
  REQUIRE(read({{"GRADMON_KEYS", "/etc/keys"}})->keys == "/etc/keys");
  REQUIRE(read({{"GRADMON_KEYS", "keys"}})->keys == std::filesystem::absolute("keys"));
  REQUIRE(read({{"GRADMON_KEYS", ""}})->keys.empty());
  REQUIRE(read({})->keys.empty());
}

TEST_CASE("rank and size are taken from the first launcher that sets them") {
  REQUIRE(read({{"RANK", "3"}, {"WORLD_SIZE", "8"}})->rank == Rank{3});
  const Variables task{{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}};
  REQUIRE(read(task)->rank == Rank{5});
  Variables daemon = task;
  daemon.insert({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  REQUIRE(read(daemon)->source == "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE");
  REQUIRE(read({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}})->world_size == 2);
  const auto pmi = read({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}});
  REQUIRE(pmi->rank == Rank{1});
  REQUIRE(pmi->source == "PMI_RANK and PMI_SIZE");
  REQUIRE(
      read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}})->world_size ==
      2);
}

TEST_CASE("one process in a Slurm allocation of four tasks is a single rank") {
  Variables script{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}};
  REQUIRE(read(script)->world_size == 1);
  script["SLURM_PROCID"] = "0";
  REQUIRE(read(script)->world_size == 1);
  for (const char* batch : {"4294967291", "4294967290", ""}) {
    script["SLURM_STEP_ID"] = batch;
    REQUIRE(read(script)->world_size == 1);
  }
  script["SLURM_STEP_ID"] = "3";
  REQUIRE(read(script)->world_size == 4);
}

TEST_CASE("the launcher with the same number of ranks decides whether there are several hosts") {
  const auto several_hosts_with = [](Variables more) {
    more.insert({{"RANK", "0"}, {"WORLD_SIZE", "4"}});
    return read(more)->several_hosts;
  };
  REQUIRE_FALSE(several_hosts_with({}).has_value());
  REQUIRE(several_hosts_with({{"LOCAL_WORLD_SIZE", "2"}}) == true);
  REQUIRE(several_hosts_with({{"LOCAL_WORLD_SIZE", "4"}}) == false);
  REQUIRE_FALSE(several_hosts_with({{"LOCAL_WORLD_SIZE", "what"}}).has_value());
  REQUIRE(several_hosts_with({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}) == true);
  REQUIRE_FALSE(
      several_hosts_with({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}).has_value());
  REQUIRE(several_hosts_with({{"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}}) == false);
  REQUIRE(several_hosts_with({{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_NODES", "2"}}) == true);
  REQUIRE(read({})->several_hosts == false);
}

TEST_CASE("an impossible rank or size is refused with its variable and value") {
  REQUIRE(read({{"RANK", "abc"}, {"WORLD_SIZE", "2"}}).error() == "RANK=\"abc\": expected an integer >= 0");
  REQUIRE(read({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).error() ==
          "RANK=\"2\": expected less than WORLD_SIZE (2)");
  REQUIRE(read({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}).error() == "RANK=\"-1\": expected an integer >= 0");
  REQUIRE(read({{"WORLD_SIZE", "2"}}).error() == "WORLD_SIZE=\"2\" without RANK");
  REQUIRE(read({{"WORLD_SIZE", "0"}}).error() == "WORLD_SIZE=\"0\": expected an integer >= 1");
  REQUIRE(read({{"WORLD_SIZE", "1"}})->world_size == 1);
}

TEST_CASE("REPLICA_GROUP_ID names the replica group") {
  REQUIRE(read({})->replica_group.empty());
  REQUIRE(read({{"REPLICA_GROUP_ID", ""}})->replica_group.empty());
  REQUIRE(read({{"REPLICA_GROUP_ID", "3"}})->replica_group == "3");
  REQUIRE(read({{"REPLICA_GROUP_ID", "west-2.b_1"}})->replica_group == "west-2.b_1");
  for (const std::string& other : {std::string("../up"), std::string("a/b"), std::string(".."),
                                   std::string("a b"), std::string(65, 'a')}) {
    REQUIRE(read({{"REPLICA_GROUP_ID", other}}).error() ==
            "REPLICA_GROUP_ID=\"" + other + "\": expected a number, or letters, digits, _, . and -");
  }
}

TEST_CASE("DYNAMIC_MONITOR chooses the mode in upper or lower case") {
  for (const char* yes : {"True", "true", "TRUE", "1", "yes", "Yes", "on", "ON"}) {
    const auto environment = read({{"DYNAMIC_MONITOR", yes}});
    REQUIRE(environment->dynamic);
    REQUIRE(environment->mode_error.empty());
  }
  for (const char* no : {"", "False", "false", "0", "no", "NO", "off", "Off"}) {
    const auto environment = read({{"DYNAMIC_MONITOR", no}});
    REQUIRE_FALSE(environment->dynamic);
    REQUIRE(environment->mode_error.empty());
  }
  REQUIRE(read({})->mode_error.empty());
}

TEST_CASE("an invalid DYNAMIC_MONITOR means static mode and an error that quotes it") {
  for (const char* other : {"Ture", "2", "dynamic", " true", "01"}) {
    const auto environment = read({{"DYNAMIC_MONITOR", other}});
    REQUIRE(environment);
    REQUIRE_FALSE(environment->dynamic);
    REQUIRE(environment->mode_error ==
            "DYNAMIC_MONITOR=\"" + std::string(other) +
                "\": expected 1, true, yes or on for dynamic mode; 0, false, no, off or nothing for static "
                "mode. Static mode is used");
  }
}

TEST_CASE("training's store is at GRADMON_STORE or else at MASTER_ADDR and MASTER_PORT") {
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

TEST_CASE("an invalid GRADMON_STORE is refused with what was expected") {
  REQUIRE(read({{"GRADMON_STORE", "here"}}).error() ==
          "GRADMON_STORE=\"here\": expected HOST:PORT of a TCPStore, or none");
  REQUIRE(read({{"GRADMON_STORE", "here:0"}}).error() == "GRADMON_STORE=\"0\": expected an integer >= 1");
  REQUIRE(read({{"GRADMON_STORE", "here:70000"}}).error() ==
          "GRADMON_STORE=\"70000\": expected at most 65535");
}

}  // namespace
}  // namespace gradmon
