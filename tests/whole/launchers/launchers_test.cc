// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/scale.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/hosts/virtual_hosts.h"
#include "tools/gradmonctl/cli/launcher.h"

namespace gradmon {
namespace {

// Runs a bash script that launches a job, and returns the lines that it printed: one for
// each rank, in any order. `$PRINT` in the script is print-launch-id, `$HERE` a temporary
// directory. Fails the test if the script fails; ends the script after `seconds`.
std::vector<std::string> run_launch(const std::string& script, int seconds = 240) {
  const TemporaryDirectory directory;
  write_text(directory / "launch", "export PRINT=" GRADMON_BIN "/print-launch-id HERE=" +
                                       directory.path().string() + "\n" + script + "\n");
  const std::string command = "timeout -k 1 " + std::to_string(seconds) + " bash " +
                              (directory / "launch").string() + " >" + (directory / "out").string() + " 2>" +
                              (directory / "error").string();
  const int status = std::system(command.c_str());
  INFO(read_text(directory / "error"));
  CHECK(status == 0);
  std::istringstream out(read_text(directory / "out"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(out, line);) lines.push_back(line);
  return lines;
}

// The line that every rank printed. Fails the test if the lines differ, are not `ranks`
// lines, or name no launch id.
std::string launch_id_of(const std::string& script, int ranks = 2) {
  const auto lines = run_launch(script);
  REQUIRE(lines.size() == static_cast<std::size_t>(ranks));
  for (const std::string& line : lines) {
    REQUIRE(line == lines.front());
    REQUIRE(line.rfind("- ", 0) != 0);
  }
  return lines.front();
}

// --- The launch id under each launcher: the same on all ranks of a launch, different for two launches.

using std::to_string;

// Starts each rank under its own shell, which stays its parent. `exports` may use $rank.
std::string ranks_under_shells(const std::string& exports, const std::string& program, int ranks = 2) {
  return "for rank in $(seq 0 " + to_string(ranks - 1) + "); do (export rank; " + exports + "\n bash -c '" +
         program + "; true') & done; wait";
}

std::string master_exports(int port) {
  return "export MASTER_ADDR=127.0.0.1 MASTER_PORT=" + to_string(port) + ";";
}

const std::string kRankExports = "export RANK=$rank WORLD_SIZE=2;";

const bool of_debian = std::string(GRADMON_PYTHON) == "/usr/bin/python3";

// The real torchrun.
std::string torchrun(const std::string& options) {
  return (of_debian ? "export OMP_NUM_THREADS=1 USE_LIBUV=0; " GRADMON_PYTHON " " GRADMON_SOURCE_DIR
                      "/tests/python/support/debian_torchrun.py "
                    : "export OMP_NUM_THREADS=1; $(dirname " GRADMON_PYTHON ")/torchrun ") +
         std::string("--no_python --nproc_per_node 2 ") + options + " ";
}

TEST_CASE("ranks that a script starts under shells of their own share a launch id") {
  const int port = free_port().value();
  const std::string script = ranks_under_shells(kRankExports + master_exports(port), "$PRINT --train");
  const std::string first = launch_id_of(script);
  REQUIRE(first.find("from training's store at 127.0.0.1:" + to_string(port)) != std::string::npos);
  REQUIRE(launch_id_of(script) != first);
}

TEST_CASE("ranks that ask before rank 0 serves the store get the launch id later") {
  launch_id_of(
      ranks_under_shells(kRankExports + master_exports(free_port().value()), "$PRINT --train --late 2500"));
}

TEST_CASE("torchrun gives one launch id and another one to a second launch on the same port") {
  const std::string script = torchrun("--master_port " + to_string(free_port().value())) + "$PRINT --train";
  const std::string first = launch_id_of(script);
  REQUIRE(first.find("from training's store") != std::string::npos);
  REQUIRE(launch_id_of(script) != first);
}

TEST_CASE("two torchrun agents share a launch id by rendezvous or by address") {
  const auto agents = [](const std::string& first, const std::string& second) {
    return torchrun("--nnodes 2 " + first) + "$PRINT --train & " + torchrun("--nnodes 2 " + second) +
           "$PRINT --train & wait";
  };
  const std::string elastic =
      "--rdzv_backend c10d --rdzv_id x --rdzv_endpoint 127.0.0.1:" + to_string(free_port().value());
  const std::string first = launch_id_of(agents(elastic, elastic), 4);
  REQUIRE(launch_id_of(agents(elastic, elastic), 4) != first);
  if (!full_scale()) return;
  const std::string fixed =
      "--master_addr 127.0.0.1 --master_port " + to_string(free_port().value()) + " --node_rank ";
  launch_id_of(agents(fixed + "0", fixed + "1"), 4);
}

TEST_CASE("a real mpirun gives one launch id and another one to a second launch") {
  if (std::system("command -v mpirun >/dev/null 2>&1") != 0) {
    WARN("skipped: there is no mpirun here");
    return;
  }
  const std::string script = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n" +
                             master_exports(free_port().value()) +
                             "mpirun -n 2 bash -c '$PRINT --train; true'";
  const std::string first = launch_id_of(script);
  REQUIRE(launch_id_of(script) != first);
}

TEST_CASE("ranks in containers of their own share a launch id by training's store and have none without it") {
  if (geteuid() != 0) {
    WARN("skipped: pid namespaces need root");
    return;
  }
  const std::string each = "unshare -pf --mount-proc ";
  const std::string script =
      ranks_under_shells(kRankExports + master_exports(free_port().value()), each + "$PRINT --train");
  const std::string first = launch_id_of(script);
  REQUIRE(launch_id_of(script) != first);
  for (const std::string& line : run_launch(ranks_under_shells(kRankExports, each + "$PRINT"))) {
    REQUIRE(line ==
            "- cannot identify this launch: set GRADMON_RUN_ID to one value on all ranks, a new one for each "
            "launch");
  }
}

TEST_CASE("two hosts that share only MASTER_ADDR share a launch id") {
  if (const std::string why = HostNetwork::why_unavailable(); !why.empty()) {
    WARN("skipped: " << why);
    return;
  }
  const HostNetwork network(2);
  std::string script;
  for (int host = 0; host < 2; ++host) {
    std::string words;
    for (const std::string& word : network.host_prefix(host)) words += "'" + word + "' ";
    script += "MASTER_ADDR=" + HostNetwork::address(0) + " MASTER_PORT=29511 RANK=" + to_string(host) +
              " WORLD_SIZE=2 " + words + "$PRINT --train &\n";
  }
  script += "wait";
  const std::string first = launch_id_of(script);
  REQUIRE(launch_id_of(script) != first);
}

TEST_CASE("under torchrun on two hosts all ranks collect the same steps before and after one is killed") {
  if (const std::string why = HostNetwork::why_unavailable(); !why.empty()) {
    WARN("skipped: " << why);
    return;
  }
  if (!full_scale()) {
    WARN("skipped: GRADMON_TEST_SCALE=full only");
    return;
  }
  if (GRADMON_SANITIZED) {
    WARN("skipped: sanitizer builds have no Python extension");
    return;
  }
  if (of_debian) {
    WARN("skipped: torch 1.13 and 2.6: Debian's torchrun has no agent that starts ranks of two hosts again");
    return;
  }
  const HostNetwork network(2);
  std::string script = "BIN=" GRADMON_BIN " PYTHON=" GRADMON_PYTHON " TREE=" GRADMON_SOURCE_DIR "\n";
  for (int host = 0; host < 2; ++host) {
    std::string words;
    for (const std::string& word : network.host_prefix(host)) words += "'" + word + "' ";
    script += "host" + to_string(host) + "=(" + words + ") address" + to_string(host) + "=" +
              HostNetwork::address(host) + "\n";
  }
  const auto lines =
      run_launch(script + "source " GRADMON_SOURCE_DIR "/tests/whole/launchers/two_hosts.sh", 240);
  REQUIRE(lines == std::vector<std::string>{"4 ranks collected the same steps",
                                            "4 ranks collected the same steps after a rank was killed",
                                            "no process is left"});
}

}  // namespace
}  // namespace gradmon
