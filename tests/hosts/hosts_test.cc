// SPDX-License-Identifier: Apache-2.0
// Real ranks on several hosts, with keys, whose links are pulled while plans are
// switched; and ranks on one host whose register is not theirs, or hangs.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "control/debian_version.h"
#include "tests/hosts/hosts_job.h"
#include "tests/runtime/real_job.h"
#include "tools/demo_report/outcome.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::seconds;

std::string config(bool on, int times = 3, const std::string& more = "") {
  return std::string(R"({"wg_distribution": true, "fence_timeout": 1.5, "write_back": false, )") + more +
         R"("dynamic_on": )" + (on ? "true" : "false") + R"(, "collect_times": )" + std::to_string(times) +
         "}\n";
}

// Says why, where the machine has no network namespaces or the test is for the full scale.
bool skipped(int quick) {
  std::string why = HostNetwork::objection();
  if (why.empty() && scaled(quick, 1) == 0) why = "GRADMON_TEST_SCALE=full only";
  if (why.empty()) return false;
  std::cout << "skipped: " << why << std::endl;
  return true;
}

std::map<std::uint64_t, std::int64_t> switches_of(const HostsJob& job, int rank) {
  std::map<std::uint64_t, std::int64_t> steps;
  for (const auto& [of, directory] : run_directories(job.output_dir(rank))) {
    if (of != rank) continue;
    std::ifstream in(directory / "switches.jsonl");
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line);
      steps[json.at("revision")] = json.at("step");
    }
  }
  return steps;
}

struct Found {
  std::string breach;  // "" where every step was run under one revision by all that did not say otherwise
  int missed = 0;
};

// Once the newest plan has ended on all ranks.
Found compare(HostsJob& job, int world) {
  Found found;
  const auto commits = job.commits();
  const Step end = schedule_of(*commits.back().plan, commits.back().effective).end();
  for (int rank = 0; rank < world; ++rank) {
    const auto noted = switches_of(job, rank);
    std::vector<Verdict> obeyed;
    for (const Verdict& commit : commits) {
      const auto note = noted.find(commit.revision.value);
      const std::string which =
          "rank " + std::to_string(rank) + ", revision " + std::to_string(commit.revision.value);
      if (note != noted.end()) {
        obeyed.push_back(commit);
        if (note->second != commit.effective.value) found.breach = which + ": another step";
      } else if (job.log(rank).find("missed revision " + std::to_string(commit.revision.value) + ",") !=
                 std::string::npos) {
        found.missed += 1;
      } else {
        found.breach = which + ": neither in force nor missed";
      }
    }
    std::set<std::int64_t> collected;
    for (const auto& [of, directory] : run_directories(job.output_dir(rank))) {
      if (of != rank) continue;
      for (const auto& [step, rows] : rows_in_directory(directory, "grad_reduced")) collected.insert(step);
    }
    if (collected != steps_agreed(obeyed, end.value)) {
      found.breach = "rank " + std::to_string(rank) + ": rows of other steps than agreed";
    }
  }
  return found;
}

// A last plan that runs to its end everywhere.
void end_in_concert(HostsJob& job, int world) {
  job.save(config(true, 2));
  REQUIRE(eventually([&] { return job.history().back().cause == "file" && job.together(); }, seconds(90)));
  REQUIRE(eventually([&] { return job.history().back().finished_step > 0; }, seconds(60)));
  CAPTURE(job.logs());
  REQUIRE(compare(job, world).breach == "");
}

std::string reason_of(HostsJob& job) {
  const Status status = job.status();
  return status.pending ? status.pending->reason : "";
}

TEST_CASE("ranks on two hosts without a directory in common switch together by way of the store") {
  if (skipped(1)) return;
  const HostNetwork network(2);
  HostsJob job({2, config(true), false, true}, &network);
  REQUIRE(job.together());
  const Status status = job.status();
  CAPTURE(job.logs());
  REQUIRE(status.register_home == "store");
  REQUIRE(status.ranks.at(0).host == "host0");
  REQUIRE(status.ranks.at(1).host == "host1");
  REQUIRE(eventually([&] { return job.history().back().finished_step > 0; }, seconds(60)));
  REQUIRE(compare(job, 2).breach == "");
}

TEST_CASE("ranks on two hosts with one directory keep the register there") {
  if (skipped(0)) return;
  const HostNetwork network(2);
  HostsJob job({2, config(true), true, true}, &network);
  REQUIRE(job.together());
  REQUIRE(job.status().register_home == "directory");
  REQUIRE(eventually([&] { return job.history().back().finished_step > 0; }, seconds(60)));
  REQUIRE(compare(job, 2).breach == "");
}

TEST_CASE("a rank whose link is down when the verdict comes goes on and says that it missed it") {
  if (skipped(0)) return;
  const HostNetwork network(3);
  const std::string far = R"("lookahead_steps": 100, )";
  HostsJob job({3, config(true, 2, far), false, true}, &network);
  REQUIRE(job.together());
  // All have promised, and the verdict cannot be written: nobody is at its fence yet.
  job.store().pause();
  job.save(config(true, 3, far));
  REQUIRE(eventually([&] { return reason_of(job) == "being written to the register"; }));
  network.take_down(2);
  job.store().resume();
  CAPTURE(job.logs());
  REQUIRE(eventually([&] { return job.log(2).find("going on with the old plan") != std::string::npos; },
                     seconds(60)));
  const std::int64_t there = job.status().ranks.at(0).step;
  REQUIRE(eventually([&] { return job.status().ranks.at(0).step > there + 10; }));
  network.bring_up(2);
  REQUIRE(eventually([&] { return job.log(2).find("missed revision") != std::string::npos; }, seconds(60)));
  REQUIRE(job.together());
  REQUIRE(job.history().back().cause == "resync");
  REQUIRE(job.history().back().by == "rank 2 missed revision 2");
  end_in_concert(job, 3);
  REQUIRE(compare(job, 3).missed == 1);
}

TEST_CASE("links that go down and up while plans are switched make no step run under two revisions") {
  if (skipped(0)) return;
  constexpr int world = 3;
  const HostNetwork network(world);
  HostsJob job({world, config(true), false, true}, &network);
  REQUIRE(job.together());
  std::mt19937 random(7);
  for (int i = 0; i < 20; ++i) {
    const int host = static_cast<int>(random() % world);
    const auto before = job.history().size();
    if (random() % 2 == 0) network.take_down(host);
    job.save(config(random() % 3 != 0, 2 + i % 5));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 2500));  // How long the outage is.
    network.take_down(host);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 2500));
    network.bring_up(host);
    CAPTURE(i, host, before, job.logs());
    if (random() % 2 == 0)
      REQUIRE(eventually([&] { return job.status().pending == std::nullopt; }, seconds(90)));
  }
  end_in_concert(job, world);
  std::cout << job.commits().size() << " commits, " << compare(job, world).missed
            << " of them missed by a rank" << std::endl;
}

TEST_CASE("without a directory or a store in common the job stays off and names the rank") {
  HostsJob job({2, config(true), false, false}, nullptr);
  CAPTURE(job.logs());
  REQUIRE(
      eventually([&] { return reason_of(job).find("rank 1: does not see rank 0's output directory") == 0; }));
  REQUIRE(reason_of(job).find("; knows no store (MASTER_ADDR and MASTER_PORT, or GRADMON_STORE") !=
          std::string::npos);
  REQUIRE(job.status().state == "off");
  REQUIRE(eventually([&] { return job.status().ranks.at(1).step > 1; }));
}

TEST_CASE("a store that hangs holds nobody for longer than the fence and all come together again") {
  HostsJob job({2, config(true, 2), false, true}, nullptr);
  REQUIRE(job.together());
  REQUIRE(job.status().register_home == "store");
  job.store().pause();
  job.save(config(true, 3));
  CAPTURE(job.logs());
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(eventually([&] { return job.log(rank).find("going on with the old plan") != std::string::npos; },
                       seconds(60)));
  }
  const auto before = job.status();
  REQUIRE(eventually([&] {
    const auto now = job.status();
    return now.ranks.at(0).step > before.ranks.at(0).step + 10 &&
           now.ranks.at(1).step > before.ranks.at(1).step;
  }));
  job.store().resume();
  end_in_concert(job, 2);
}

}  // namespace
}  // namespace gradmon
