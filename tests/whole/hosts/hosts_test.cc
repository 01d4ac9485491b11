// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "control/host/child_process.h"
#include "control/host/job_directory.h"
#include "control/hub/transport/command_client.h"
#include "control/hub/transport/rendezvous.h"
#include "control/wire/command.h"
#include "tests/support/catch.h"
#include "tests/support/outcome.h"
#include "tests/support/process_figures.h"
#include "tests/support/real_job.h"
#include "tests/support/scale.h"
#include "tests/support/store_server.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/hosts/virtual_hosts.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr char kPort[] = "7741";

// Real gradmon-train processes, one on each host, uncoupled: only the agreement keeps them
// together. Each host has its own directory for its hub's socket, so that no two hosts
// share a hub.
class HostsJob {
  const TemporaryDirectory directory_;  // Keep first: the paths are below it.

 public:
  // How the hubs of the other hosts find the lead hub. With `endpoint` and without keys made
  // by hand they get the key from training's store.
  enum class Rendezvous { endpoint, directory, store, none };

  struct Options {
    int world = 2;
    std::string config = "{}";
    // directory: all hosts share one output directory; else each host has its own.
    Rendezvous rendezvous = Rendezvous::endpoint;
    bool keys_by_hand = false;         // gradmonctl keygen
    bool set_local_world_size = true;  // sets LOCAL_WORLD_SIZE
  };

  // `network`: its hosts; null: all ranks run on this host.
  HostsJob(const Options& options, const HostNetwork* network) : options_(options), launch_(random_hex(8)) {
    save(options_.config);
    const bool no_keys = options_.rendezvous == Rendezvous::endpoint && !options_.keys_by_hand;
    if (options_.rendezvous == Rendezvous::store || no_keys)
      store_ = std::make_unique<StoreServer>(HostNetwork::switch_address());
    if (options_.keys_by_hand) {
      keys_ = directory_ / "keys";
      if (run_program({program("gradmonctl"), "keygen", keys_.string()}, directory_ / "keygen") != 0)
        throw std::runtime_error(read_text(directory_ / "keygen"));
    }
    for (int rank = 0; rank < options_.world; ++rank) start(rank, network);
  }
  // Calls end().
  ~HostsJob() { end(); }
  HostsJob(const HostsJob&) = delete;
  HostsJob& operator=(const HostsJob&) = delete;

  std::filesystem::path config_path() const { return directory_ / "config.json"; }
  std::filesystem::path output_dir(int rank) const {
    const bool shared = options_.rendezvous == Rendezvous::directory;
    return directory_ / (shared ? "out" : "out" + std::to_string(rank));
  }
  // of the lead hub; empty if there is none
  JobEntry entry() const { return find_entry(output_dir(0), launch_).value_or(JobEntry{}); }
  // "tcp://ADDRESS:PORT" of the lead hub, from its entry; "" before it listens.
  std::string address() const { return entry().address; }
  // -1: none listens
  pid_t hub(int host) const { return listener_of(socket(host)); }

  // Asks the hub of that host over its Unix socket; repeats until it answers.
  CommandReply ask(Command command, int host = 0,
                   std::chrono::milliseconds at_most = std::chrono::seconds(60)) {
    if (command.request_id.empty()) command.request_id = random_hex(8);
    CommandReply reply;
    reply.outcome = CommandOutcome::failed;
    CommandClient client("ipc://" + socket(host).string());
    if (auto answer = client.ask(command, at_most)) reply = std::move(*answer);
    return reply;
  }
  CommandReply ask(CommandVerb verb, int host = 0) {
    Command command;
    command.verb = verb;
    command.by = "tester";
    return ask(command, host);
  }
  Status status() { return ask(CommandVerb::status).status.value_or(Status{}); }
  std::vector<HistoryEntry> history() { return ask(CommandVerb::history).history; }
  // Saves a config as the user would, on rank 0's host, without the network.
  void save(const std::string& config) const {
    const auto beside = directory_ / "beside";
    write_text(beside, config);
    fs::rename(beside, config_path());
  }
  // Waits until the newest change is committed and applied by all ranks.
  bool wait_until_agreed(std::chrono::milliseconds at_most = std::chrono::seconds(90)) {
    return eventually(
        [&] {
          const auto entries = history();
          if (entries.empty()) return false;
          const HistoryEntry& newest = entries.back();
          return newest.final && newest.verdict == "commit" &&
                 newest.applied.size() == static_cast<std::size_t>(options_.world);
        },
        at_most);
  }

  std::string log(int rank) const { return read_text(directory_ / ("log" + std::to_string(rank))); }
  // of ranks and hubs
  std::string logs() const {
    std::string all;
    for (int rank = 0; rank < options_.world; ++rank) {
      const std::string name = std::to_string(rank);
      all += "rank " + name + ":\n" + log(rank);
      all += "hub of host " + name + ":\n" + read_text(socket(rank).parent_path() / "hub.log");
    }
    return all;
  }
  bool is_running(int rank) {
    pid_t& process = ranks_[static_cast<std::size_t>(rank)];
    if (process > 0 && waitpid(process, nullptr, WNOHANG) != 0) process = -1;
    return process > 0;
  }
  // Kills all ranks and hubs (SIGKILL), and waits for the ranks.
  void end() {
    for (int host = 0; host < static_cast<int>(ranks_.size()); ++host) {
      if (const pid_t hub = listener_of(socket(host)); hub > 0) kill(hub, SIGKILL);
    }
    for (const pid_t rank : ranks_) {
      if (rank > 0) kill(rank, SIGKILL);
    }
    for (const pid_t rank : ranks_) {
      if (rank > 0) waitpid(rank, nullptr, 0);
    }
    ranks_.clear();
  }

 private:
  void start(int rank, const HostNetwork* network) {
    fs::create_directory(runtime_directory(rank));
    fs::permissions(runtime_directory(rank), fs::perms::owner_all);
    std::map<std::string, std::string> environment{{"RANK", std::to_string(rank)},
                                                   {"WORLD_SIZE", std::to_string(options_.world)},
                                                   {"GRADMON_RUN_ID", launch_},
                                                   {"DYNAMIC_MONITOR", "True"},
                                                   {"XDG_RUNTIME_DIR", runtime_directory(rank).string()},
                                                   {"MONITOR_OUTPUT_DIR", output_dir(rank).string()},
                                                   {"MASTER_ADDR", HostNetwork::address(0)},
                                                   {"GRADMON_STORE", "none"}};
    if (options_.set_local_world_size) environment["LOCAL_WORLD_SIZE"] = "1";
    if (options_.rendezvous == Rendezvous::endpoint)
      environment["GRADMON_ENDPOINT"] = "tcp://" + HostNetwork::address(0) + ":" + kPort;
    if (options_.keys_by_hand) environment["GRADMON_KEYS"] = keys_.string();
    if (store_) environment["GRADMON_STORE"] = store_->host() + ":" + std::to_string(store_->port());
    std::vector<std::string> command;
    if (network != nullptr) command = network->host_prefix(rank);
    const std::vector<std::string> train = small_training(config_path());
    command.insert(command.end(), train.begin(), train.end());
    command.insert(command.end(), {"--uncoupled", "--step-ms", "20", "--steps", "100000000"});
    ranks_.push_back(start_program(command, directory_ / ("log" + std::to_string(rank)), environment));
  }
  std::filesystem::path runtime_directory(int host) const {
    return directory_ / ("run" + std::to_string(host));
  }
  std::filesystem::path socket(int host) const {
    return JobDirectory{runtime_directory(host) / "gradmon" / job_file_name(launch_)}.socket();
  }

  const Options options_;
  const std::string launch_;
  std::filesystem::path keys_;          // "": none
  std::unique_ptr<StoreServer> store_;  // null: none
  std::vector<pid_t> ranks_;            // -1: it has ended
};

// --- Real ranks on several hosts: how their hubs find the lead hub, with and without keys made
// by hand; and switching while links go down. (Keys of foreign peers: hub/transport/bus_test,
// hostile/secrets_test.)

using std::chrono::seconds;
using Rendezvous = HostsJob::Rendezvous;

std::string config(bool on, int times = 3, double max_wait = 1.5) {
  const nlohmann::json all = {{"wg_distribution", true},
                              {"max_wait", max_wait},
                              {"write_back", false},
                              {"dynamic_on", on},
                              {"collect_times", times}};
  return all.dump() + "\n";
}

// True: the test is skipped. `quick` 0: the test is for the full scale only.
bool skipped(int quick) {
  std::string why = HostNetwork::why_unavailable();
  if (why.empty() && scaled(quick, 1) == 0) why = "GRADMON_TEST_SCALE=full only";
  if (why.empty()) return false;
  WARN("skipped: " << why);
  return true;
}

bool within_a_minute(const std::function<bool()>& condition) { return eventually(condition, seconds(60)); }

using Steps = std::map<std::int64_t, std::uint64_t>;  // revision by step

Steps switches_in(const std::filesystem::path& directory) {
  Steps switches;
  std::ifstream in(directory / "switches.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line);
    switches[json.at("step")] = json.at("revision");
  }
  return switches;
}

// Waits until every rank has noted the newest revision: it does so after the first rows.
bool wait_until_noted(HostsJob& job, int world) {
  const std::uint64_t newest = job.history().back().revision.value;
  const auto has_noted = [&](int rank) {
    const auto directories = run_directories(job.output_dir(rank));
    return std::any_of(directories.begin(), directories.end(), [&](const auto& directory) {
      if (directory.first != rank) return false;
      const Steps switches = switches_in(directory.second);
      return !switches.empty() && switches.rbegin()->second == newest;
    });
  };
  return within_a_minute([&] {
    for (int rank = 0; rank < world; ++rank)
      if (!has_noted(rank)) return false;
    return true;
  });
}

// The steps of which a rank has rows, with the revision in force on the rank.
Steps collected_by(const HostsJob& job, int rank) {
  Steps collected;
  for (const auto& [of, directory] : run_directories(job.output_dir(rank))) {
    if (of != rank) continue;
    const Steps switches = switches_in(directory);
    for (const auto& [step, rows] : rows_in_directory(directory, "grad_reduced")) {
      const auto after = switches.upper_bound(step);
      collected[step] = after == switches.begin() ? 0 : std::prev(after)->second;
    }
  }
  return collected;
}

// A step that was collected under two revisions; "" if there is none. Call it after wait_until_noted().
std::string revision_conflict(const HostsJob& job, int world) {
  Steps all;
  for (int rank = 0; rank < world; ++rank) {
    for (const auto& [step, revision] : collected_by(job, rank)) {
      const auto [at, first] = all.emplace(step, revision);
      if (at->second != revision) return "step " + std::to_string(step) + ", rank " + std::to_string(rank);
    }
  }
  return "";
}

// "" if every rank has rows of exactly the agreed steps, and revision_conflict() is "".
std::string wrong_steps(const HostsJob& job, int world) {
  const auto commits = commits_in_history(job.output_dir(0));
  if (commits.empty()) return "nothing was committed";
  const std::set<std::int64_t> agreed = steps_agreed(commits, commits.back().steps.end().value);
  for (int rank = 0; rank < world; ++rank) {
    std::set<std::int64_t> own;
    for (const auto& [step, revision] : collected_by(job, rank)) own.insert(step);
    if (own != agreed)
      return "rank " + std::to_string(rank) + " has rows of " + nlohmann::json(own).dump() + " instead of " +
             nlohmann::json(agreed).dump();
  }
  return revision_conflict(job, world);
}

bool wait_until_finished(HostsJob& job) {
  return within_a_minute([&] {
    const auto history = job.history();
    return !history.empty() && history.back().finished_step > 0;
  });
}

std::string reason_of(HostsJob& job) {
  const Status status = job.status();
  return status.pending ? status.pending->reason : "";
}

// Fails the test with the newest logs.
void require(const HostsJob& job, const std::string& claim, bool holds) {
  CAPTURE(claim, job.logs());
  REQUIRE(holds);
}

void require_agreed_steps(const HostsJob& job, int world) {
  CAPTURE(job.logs());
  REQUIRE(wrong_steps(job, world) == "");
}

void switch_together(HostsJob::Options options) {
  const int world = options.world;
  options.config = config(true, 3, 60);  // a busy machine stalls a rank for longer than 1.5 s, and it lapses
  const HostNetwork network(world);
  HostsJob job(options, &network);
  require(job, "the first plan is agreed on", job.wait_until_agreed());
  const Status status = job.status();
  for (int rank = 0; rank < world; ++rank)
    REQUIRE(status.ranks.at(static_cast<std::size_t>(rank)).host == "host" + std::to_string(rank));
  require(job, "the first plan finishes", wait_until_finished(job));
  require_agreed_steps(job, world);
  // A command sent to another host's hub.
  Command on;
  on.verb = CommandVerb::on;
  on.by = "tester";
  on.collect_times = 2;
  REQUIRE(job.ask(on, world - 1).outcome == CommandOutcome::done);
  require(job, "the second plan is agreed on", job.wait_until_agreed());
  require(job, "the second plan finishes", wait_until_finished(job));
  require_agreed_steps(job, world);
}

TEST_CASE("two hosts switch together however they find the lead hub") {
  if (skipped(1)) return;
  SECTION("an endpoint, with keys made by hand") { switch_together({2, "", Rendezvous::endpoint, true}); }
  SECTION("an endpoint, without keys made by hand") { switch_together({2, "", Rendezvous::endpoint}); }
  SECTION("one output directory") { switch_together({2, "", Rendezvous::directory}); }
  SECTION("one output directory, without LOCAL_WORLD_SIZE") {
    switch_together({2, "", Rendezvous::directory, false, false});
  }
  SECTION("training's store") { switch_together({2, "", Rendezvous::store}); }
  SECTION("training's store, without LOCAL_WORLD_SIZE") {
    if (!skipped(0)) switch_together({2, "", Rendezvous::store, false, false});
  }
}

TEST_CASE("four hosts switch together however they find the lead hub") {
  const auto rendezvous = GENERATE(Rendezvous::store, Rendezvous::directory, Rendezvous::endpoint);
  if (skipped(rendezvous == Rendezvous::store ? 1 : 0)) return;
  switch_together({4, "", rendezvous});
}

TEST_CASE("a job on one host listens on no port") {
  HostsJob job({1, config(false), Rendezvous::none}, nullptr);
  REQUIRE(within_a_minute([&] { return !job.entry().endpoint.empty() && job.status().state == "off"; }));
  CHECK(job.address().empty());
  CHECK(tcp_sockets_of(job.hub(0)) == 0);
}

TEST_CASE("the job agrees on changes again after the lead hub or another host's hub was killed") {
  if (skipped(1)) return;
  const HostNetwork network(2);
  HostsJob job({2, config(true, 100'000), Rendezvous::store}, &network);
  REQUIRE(job.wait_until_agreed());
  for (const int host : {0, 1, 0}) {
    const pid_t before = job.hub(host);
    REQUIRE(before > 0);
    kill(before, SIGKILL);
    REQUIRE(eventually([&] { return job.hub(host) > 0 && job.hub(host) != before; }));
    const std::size_t changes = job.history().size();
    job.save(config(true, 90'000 + host + static_cast<int>(changes)));
    require(job, "the job agrees on a change after the hub of host " + std::to_string(host) + " was killed",
            within_a_minute([&] { return job.history().size() > changes && job.wait_until_agreed(); }));
  }
  require(job, "the ranks note the last change", wait_until_noted(job, 2));
  REQUIRE(revision_conflict(job, 2) == "");
}

TEST_CASE("a rank whose link is down goes off by itself and rejoins when the link is up") {
  if (skipped(0)) return;
  const HostNetwork network(3);
  HostsJob job({3, config(true, 100'000), Rendezvous::store}, &network);
  REQUIRE(job.wait_until_agreed());
  network.take_down(2);
  const std::int64_t there = job.status().ranks.at(0).step;
  require(job, "rank 2 goes off",
          within_a_minute([&] { return job.log(2).find("rank 2: off") != std::string::npos; }));
  require(job, "rank 2 is dropped",
          within_a_minute([&] { return job.status().ranks.at(2).state == "dropped"; }));
  REQUIRE(job.status().ranks.at(0).step > there);
  job.save(config(true, 90'000));
  const auto two_have_applied = [&] {
    const auto history = job.history();
    return history.size() >= 2 && history.back().verdict == "commit" && history.back().applied.size() == 2;
  };
  require(job, "the other ranks apply a change", within_a_minute(two_have_applied));
  network.bring_up(2);
  require(job, "all ranks agree again", job.wait_until_agreed());
  REQUIRE(job.history().back().cause == "resync");
  require(job, "the ranks note the resync", wait_until_noted(job, 3));
  REQUIRE(revision_conflict(job, 3) == "");
}

TEST_CASE("if a rank cannot find the lead hub the job stays off and names the rank and all train on") {
  HostsJob job({2, config(true), Rendezvous::none}, nullptr);
  require(job, "the status names the missing rank",
          eventually([&] { return reason_of(job) == "waiting for rank 1 of 2 to create its Monitor"; }));
  require(job, "the hub of rank 1 says why", eventually([&] {
            return job.ask(CommandVerb::status, 1).message == "the lead hub is not found yet";
          }));
  require(job, "rank 1 goes off",
          eventually([&] { return job.log(1).find("rank 1: off") != std::string::npos; }));
  require(job, "rank 0 trains on", eventually([&] { return job.status().ranks.at(0).step > 2; }));
  REQUIRE(job.status().state == "off");
  REQUIRE(job.is_running(1));
}

}  // namespace
}  // namespace gradmon
