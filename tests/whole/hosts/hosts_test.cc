// SPDX-License-Identifier: Apache-2.0
// Real ranks on several hosts: how their hubs find the lead, with keys made by hand and
// without, whose links are pulled while plans are switched, and who else gets in.
#include <signal.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "control/debian_version.h"
#include "tests/support/process_figures.h"
#include "tests/support/real_job.h"
#include "tests/whole/hosts/hosts_job.h"
#include "tools/demo_report/outcome.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::seconds;
using Rendezvous = HostsJob::Rendezvous;

std::string config(bool on, int times = 3) {
  return std::string(R"({"wg_distribution": true, "max_wait": 1.5, "write_back": false, )") +
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

using Steps = std::map<std::int64_t, std::uint64_t>;  // step to revision

// Which steps a rank has rows of, and which revision was in force there then.
Steps collected_by(const HostsJob& job, int rank) {
  Steps collected;
  for (const auto& [of, directory] : run_directories(job.output_dir(rank))) {
    if (of != rank) continue;
    Steps switches;
    std::ifstream in(directory / "switches.jsonl");
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line);
      switches[json.at("step")] = json.at("revision");
    }
    for (const auto& [step, rows] : rows_in_directory(directory, "grad_reduced")) {
      const auto after = switches.upper_bound(step);
      collected[step] = after == switches.begin() ? 0 : std::prev(after)->second;
    }
  }
  return collected;
}

// "" where no step was collected under two revisions.
std::string breach(const HostsJob& job, int world) {
  Steps all;
  for (int rank = 0; rank < world; ++rank) {
    for (const auto& [step, revision] : collected_by(job, rank)) {
      const auto [at, first] = all.emplace(step, revision);
      if (at->second != revision) return "step " + std::to_string(step) + ", rank " + std::to_string(rank);
    }
  }
  return "";
}

// "" where every rank has rows of exactly the steps that were agreed.
std::string difference(const HostsJob& job, int world) {
  const auto commits = commits_in_history(job.output_dir(0));
  if (commits.empty()) return "nothing was committed";
  const std::set<std::int64_t> agreed = steps_agreed(commits, commits.back().steps.end().value);
  for (int rank = 0; rank < world; ++rank) {
    std::set<std::int64_t> own;
    for (const auto& [step, revision] : collected_by(job, rank)) own.insert(step);
    if (own != agreed) return "rank " + std::to_string(rank) + " has rows of other steps";
  }
  return breach(job, world);
}

bool finished(HostsJob& job) {
  return eventually(
      [&] {
        const auto history = job.history();
        return !history.empty() && history.back().finished_step > 0;
      },
      seconds(60));
}

std::string reason_of(HostsJob& job) {
  const Status status = job.status();
  return status.pending ? status.pending->reason : "";
}

void switch_together(HostsJob::Options options) {
  const int world = options.world;
  options.config = config(true);
  const HostNetwork network(world);
  HostsJob job(options, &network);
  const bool agreed = job.together();
  CAPTURE(job.logs());
  REQUIRE(agreed);
  const Status status = job.status();
  for (int rank = 0; rank < world; ++rank)
    REQUIRE(status.ranks.at(static_cast<std::size_t>(rank)).host == "host" + std::to_string(rank));
  REQUIRE(finished(job));
  REQUIRE(difference(job, world) == "");
  // A command that comes by way of another host's hub.
  Command on;
  on.verb = CommandVerb::on;
  on.by = "tester";
  on.collect_times = 2;
  REQUIRE(job.ask(on, world - 1).outcome == CommandOutcome::done);
  REQUIRE(job.together());
  REQUIRE(finished(job));
  REQUIRE(difference(job, world) == "");
}

TEST_CASE("two hosts with keys made by hand switch together by way of the endpoint") {
  if (skipped(1)) return;
  switch_together({2, "", Rendezvous::endpoint, true});
}

TEST_CASE("two hosts without keys made by hand switch together by way of the endpoint") {
  if (skipped(1)) return;
  switch_together({2, "", Rendezvous::endpoint});
}

TEST_CASE("two hosts with one output directory find the lead there") {
  if (skipped(1)) return;
  switch_together({2, "", Rendezvous::directory});
}

TEST_CASE("two hosts of which the launcher says nothing find each other by the output directory") {
  if (skipped(1)) return;
  switch_together({2, "", Rendezvous::directory, false, false});
}

TEST_CASE("two hosts with nothing in common but training's store find the lead there") {
  if (skipped(1)) return;
  switch_together({2, "", Rendezvous::store});
}

TEST_CASE("two hosts of which the launcher says nothing find each other by training's store") {
  if (skipped(0)) return;
  switch_together({2, "", Rendezvous::store, false, false});
}

TEST_CASE("four hosts switch together however they find the lead") {
  const auto rendezvous = GENERATE(Rendezvous::store, Rendezvous::directory, Rendezvous::endpoint);
  if (skipped(rendezvous == Rendezvous::store ? 1 : 0)) return;
  switch_together({4, "", rendezvous});
}

// A gradmonctl on the third host, which has no rank.
class OtherHost {
 public:
  OtherHost(const HostNetwork& network, const HostsJob& job) : network_(network), job_(job) {}

  int ask(const std::vector<std::string>& words, const std::string& keys) {
    const auto answers = job_.directory() / "answers";
    std::filesystem::remove(answers);
    std::vector<std::string> command = network_.on_host(2);
    command.push_back(program("gradmonctl"));
    command.insert(command.end(), words.begin(), words.end());
    command.insert(command.end(), {"--endpoint", job_.address()});
    if (!keys.empty()) command.insert(command.end(), {"--keys", keys});
    const int code = run_program(command, answers, {{"XDG_RUNTIME_DIR", (job_.directory() / "run2").string()}});
    said = read_text(answers);
    return code;
  }
  // A key directory that no job knows.
  std::string foreign_keys() const {
    const auto made = job_.directory() / "foreign";
    const int code = run_program({program("gradmonctl"), "keygen", made.string()}, job_.directory() / "said");
    if (code != 0) throw std::runtime_error(read_text(job_.directory() / "said"));
    return made.string();
  }
  void gets_nothing(const std::string& keys) {
    CAPTURE(keys);
    CHECK(ask({"status", "--json"}, keys) != 0);
    CHECK(said.find("host1") == said.npos);
    CHECK(said.find("config.json") == said.npos);
    CHECK(ask({"on"}, keys) != 0);
  }

  std::string said;

 private:
  const HostNetwork& network_;
  const HostsJob& job_;
};

// Status lists a rank that has not come yet, too, without its host.
bool both_have_come(HostsJob& job) {
  return eventually(
      [&] {
        const auto ranks = job.status().ranks;
        return !job.address().empty() && ranks.size() == 2 && ranks[1].host == "host1";
      },
      seconds(60));
}

TEST_CASE("from another host only the operator's key gets an answer") {
  if (skipped(1)) return;
  const HostNetwork network(3);
  HostsJob job({2, config(false), Rendezvous::endpoint, true}, &network);
  REQUIRE(both_have_come(job));
  OtherHost other(network, job);
  CHECK(other.ask({"status", "--json"}, job.keys().string()) == 0);
  CHECK(other.said.find("host1") != other.said.npos);
  CHECK(other.ask({"off"}, job.keys().string()) == 0);
  other.gets_nothing("");
  other.gets_nothing(other.foreign_keys());
  CHECK(job.history().empty());
  CHECK(job.trains(0));
  CHECK(job.trains(1));
}

TEST_CASE("a stranger with the port and the public key of a job without keys by hand gets nothing") {
  if (skipped(1)) return;
  const HostNetwork network(3);
  HostsJob job({2, config(false), Rendezvous::directory}, &network);
  const bool came = both_have_come(job);
  CAPTURE(job.logs());
  REQUIRE(came);
  OtherHost stranger(network, job);
  stranger.gets_nothing("");
  const std::string keys = stranger.foreign_keys();
  stranger.gets_nothing(keys);
  REQUIRE(job.entry().key.size() == 40);
  write_text(std::filesystem::path(keys) / "server.public", job.entry().key + "\n");
  stranger.gets_nothing(keys);
  CHECK(job.history().empty());
}

TEST_CASE("a job on one host listens on no port") {
  HostsJob job({1, config(false), Rendezvous::none}, nullptr);
  REQUIRE(eventually([&] { return !job.entry().endpoint.empty() && job.status().state == "off"; }, seconds(60)));
  CHECK(job.address().empty());
  CHECK(tcp_sockets_of(job.hub(0)) == 0);
}

TEST_CASE("after the death of the lead hub or of another host's hub the job agrees as before") {
  if (skipped(1)) return;
  const HostNetwork network(2);
  HostsJob job({2, config(true, 100'000), Rendezvous::store}, &network);
  REQUIRE(job.together());
  for (const int host : {0, 1, 0}) {
    const pid_t before = job.hub(host);
    REQUIRE(before > 0);
    kill(before, SIGKILL);
    REQUIRE(eventually([&] { return job.hub(host) > 0 && job.hub(host) != before; }));
    const std::size_t changes = job.history().size();
    job.save(config(true, 90'000 + host + static_cast<int>(changes)));
    const bool agreed = eventually([&] { return job.history().size() > changes && job.together(); }, seconds(60));
    CAPTURE(host, job.logs());
    REQUIRE(agreed);
  }
  REQUIRE(breach(job, 2) == "");
}

TEST_CASE("a rank whose link is down goes off by itself and comes in again when it is back") {
  if (skipped(0)) return;
  const HostNetwork network(3);
  HostsJob job({3, config(true, 100'000), Rendezvous::store}, &network);
  REQUIRE(job.together());
  network.take_down(2);
  CAPTURE(job.logs());
  const std::int64_t there = job.status().ranks.at(0).step;
  REQUIRE(eventually([&] { return job.log(2).find("rank 2: off") != std::string::npos; }, seconds(60)));
  REQUIRE(eventually([&] { return job.status().ranks.at(2).state == "dropped"; }, seconds(60)));
  REQUIRE(job.status().ranks.at(0).step > there);
  job.save(config(true, 90'000));
  REQUIRE(eventually([&] {
    const auto history = job.history();
    return history.size() >= 2 && history.back().verdict == "commit" && history.back().applied.size() == 2;
  }, seconds(60)));
  network.bring_up(2);
  REQUIRE(job.together());
  REQUIRE(job.history().back().cause == "resync");
  REQUIRE(breach(job, 3) == "");
}

TEST_CASE("links that go down and up while plans are switched make no step run under two revisions") {
  if (skipped(0)) return;
  constexpr int world = 3;
  const HostNetwork network(world);
  HostsJob job({world, config(true), Rendezvous::directory}, &network);
  REQUIRE(job.together());
  std::mt19937 random(7);
  for (int i = 0; i < 20; ++i) {
    const int host = static_cast<int>(random() % world);
    if (random() % 2 == 0) network.take_down(host);
    job.save(config(random() % 3 != 0, 2 + i % 5));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 2500));  // How long the outage is.
    network.take_down(host);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 2500));
    network.bring_up(host);
    CAPTURE(i, host, job.logs());
    if (random() % 2 == 0)
      REQUIRE(eventually([&] { return job.status().pending == std::nullopt; }, seconds(90)));
  }
  const std::size_t before = job.history().size();
  job.save(config(true, 2));
  REQUIRE(eventually([&] { return job.history().size() > before && job.together(); }, seconds(120)));
  REQUIRE(finished(job));
  CAPTURE(job.logs());
  REQUIRE(breach(job, world) == "");
}

TEST_CASE("without a way to the lead the job stays off and names the rank and all train on") {
  HostsJob job({2, config(true), Rendezvous::none}, nullptr);
  CAPTURE(job.logs());
  REQUIRE(eventually([&] { return reason_of(job) == "waiting for rank 1 of 2 to create its Monitor"; }));
  REQUIRE(job.ask(CommandVerb::status, 1).message == "the lead hub is not found yet");
  REQUIRE(eventually([&] { return job.log(1).find("rank 1: off") != std::string::npos; }));
  REQUIRE(eventually([&] { return job.status().ranks.at(0).step > 2; }));
  REQUIRE(job.status().state == "off");
  REQUIRE(job.trains(1));
}

}  // namespace
}  // namespace gradmon
