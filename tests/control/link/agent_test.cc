// SPDX-License-Identifier: Apache-2.0
#include "control/link/agent.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>

#include "control/debian_version.h"
#include "control/host/process_identity.h"
#include "tests/control/link/agent_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

const std::string kOff = R"({"dynamic_on": false})";
const std::string kOnForLong = R"({"dynamic_on": true, "collect_times": 100000000})";

bool steps_on(AgentRank& rank, std::int64_t steps = 50) {
  const std::int64_t before = rank.step();
  return eventually([&] { return rank.step() >= before + steps; });
}

bool is_on(AgentJob& job) {
  return eventually([&] {
    const Status status = job.status();
    return status.state == "on" && !status.pending;
  });
}

// --- What a job does. ---

TEST_CASE("a rank alone starts on, collects, and its end is written back") {
  AgentJob job(1, R"({"dynamic_on": true, "collect_times": 2})");
  REQUIRE(eventually(
      [&] { return read_text(job.config_path()) == R"({"dynamic_on": false, "collect_times": 2})"; }));
  CHECK(job.status().reason == "finished");
  job.stop();
  CHECK(job.rank(0).collected.size() == 2);
}

TEST_CASE("a saved file switches all ranks at one step and its end is written back") {
  AgentJob job(2, kOff);
  REQUIRE(eventually([&] { return job.status().reason == "never turned on"; }));
  write_text(job.config_path(), "{\n  \"dynamic_on\": true,\n  \"collect_times\": 3\n}\n");
  REQUIRE(eventually([&] {
    return read_text(job.config_path()) == "{\n  \"dynamic_on\": false,\n  \"collect_times\": 3\n}\n";
  }));
  const auto history = job.history();
  CHECK(history.front().cause == "file");
  CHECK(history.back().verdict == "commit");
  CHECK(job.divergence().empty());
  CHECK(job.rank(0).collected.size() == 3);
  CHECK(job.rank(1).collected == job.rank(0).collected);
}

TEST_CASE("what several ranks' programs ask for in one step is one change on all ranks") {
  AgentJob job(2, kOff);
  Command on;
  on.verb = CommandVerb::on;
  on.request_id = "step 7 on";
  on.collect_times = 4;
  for (const int rank : {1, 0}) job.rank(rank).agent().submit(on);
  REQUIRE(eventually([&] { return job.ask(CommandVerb::verdict, "step 7 on").settled; }));
  CHECK(job.settled("step 7 on").effective_step > 0);
  CHECK(read_text(job.config_path()).find(R"("collect_times": 4)") != std::string::npos);
  const auto history = job.history();
  CHECK(std::count_if(history.begin(), history.end(), [](const HistoryEntry& entry) {
          return entry.request_id == "step 7 on";
        }) == 1);
  CHECK(history.front().by.find("the program of rank ") == 0);
  CHECK(job.divergence().empty());
}

TEST_CASE("changes back to back are all accounted for and the last one holds") {
  AgentJob job(2, kOff);
  for (int i = 0; i < 20; ++i) job.ask(i % 2 == 0 ? CommandVerb::on : CommandVerb::off, "r" + std::to_string(i));
  job.ask(CommandVerb::on, "last");
  CHECK(job.settled("last").outcome == CommandOutcome::done);
  for (const HistoryEntry& entry : job.history()) {
    CAPTURE(entry.revision.value, entry.reason);
    CHECK(!entry.verdict.empty());
  }
  CHECK(job.status().state == "on");
  CHECK(job.divergence().empty());
}

TEST_CASE("rank 0's process knows the state of the job and every process what all have in common") {
  AgentJob job(2, kOff);
  REQUIRE(eventually([&] {
    const Status status = job.rank(0).agent().status();
    return status.ranks.size() == 2 && status.ranks[1].state == "idle";
  }));
  REQUIRE(eventually([&] { return job.rank(1).agent().job() && job.rank(0).agent().job(); }));
  CHECK(job.rank(0).agent().job()->run_id == job.rank(1).agent().job()->run_id);
  CHECK(job.rank(0).agent().job()->epoch == job.status().epoch);
  CHECK(job.rank(1).agent().status().ranks.at(0).rank == Rank{1});
}

TEST_CASE("static mode answers status and refuses commands") {
  AgentOptions options;
  options.mode = Mode::static_once;
  AgentJob job(2, "{}", options);
  REQUIRE(eventually([&] { return job.rank(1).agent().job() && job.rank(0).agent().job(); }));
  CHECK(job.status().mode == "static");
  const CommandReply reply = job.ask(CommandVerb::on);
  CHECK(reply.outcome == CommandOutcome::failed);
  CHECK(reply.message.find("static mode") == 0);
}

TEST_CASE("a second process with a rank's number is refused and its training goes on off") {
  AgentJob job(1, kOff);
  REQUIRE(eventually([&] { return job.rank(0).agent().job().has_value(); }));
  AgentRank second(job.options(0), std::chrono::microseconds(500));
  CHECK(steps_on(second, 10));
  CHECK(eventually([&] {
    return second.agent().status().reason.find("rank 0 already belongs to pid ") != std::string::npos;
  }));
  CHECK(job.status().ranks.at(0).state == "idle");
}

// --- The hub's process. ---

TEST_CASE("the hub ends after the last rank and leaves nothing but its log") {
  AgentJob job(2, kOff);
  REQUIRE(eventually([&] { return job.rank(1).agent().job() && job.rank(0).agent().job(); }));
  job.stop();
  CHECK(eventually([&] { return job.hub() == 0; }, seconds(4)));
  std::vector<std::string> files;
  for (const auto& file : fs::directory_iterator(job.directory().path)) files.push_back(file.path().filename());
  files.erase(std::remove(files.begin(), files.end(), "hub.log"), files.end());  // where it had something to say
  CHECK(files.empty());
}

TEST_CASE("a hub that is killed comes back, the epoch and the plan go on, and training feels nothing") {
  AgentJob job(2, kOnForLong);
  REQUIRE(is_on(job));
  const Status before = job.status();
  for (int i = 0; i < 2; ++i) {
    const pid_t killed = job.hub();
    REQUIRE(killed > 1);
    REQUIRE(kill(killed, SIGKILL) == 0);
    REQUIRE(eventually([&] {
      const pid_t now = job.hub();
      return now > 1 && now != killed;
    }));
    REQUIRE(is_on(job));
  }
  CHECK(job.status().epoch == before.epoch);
  CHECK(job.status().effective_step == before.effective_step);
  CHECK(job.history().size() <= 1);  // no resync was needed
  job.ask(CommandVerb::off, "off");
  CHECK(job.settled("off").outcome == CommandOutcome::done);
  CHECK(job.rank(0).longest_pause() < seconds(2));
  CHECK(job.divergence().empty());
  const auto& collected = job.rank(0).collected;
  REQUIRE_FALSE(collected.empty());
  // Each step from the first to the last.
  CHECK(collected.rbegin()->first - collected.begin()->first + 1 == static_cast<std::int64_t>(collected.size()));
}

TEST_CASE("a config of nearly 1 MiB is agreed on and outlives the hub") {
  AgentJob job(2, kOff);
  REQUIRE(eventually([&] { return job.status().reason == "never turned on"; }));
  write_text(job.config_path(), R"({"dynamic_on": true, "collect_times": 100000000, "note": ")" +
                                    std::string((1U << 20U) - 100, 'x') + "\"}");
  REQUIRE(is_on(job));
  const Status before = job.status();
  const pid_t killed = job.hub();
  REQUIRE(kill(killed, SIGKILL) == 0);
  REQUIRE(eventually([&] { return job.hub() > 1 && job.hub() != killed; }));
  REQUIRE(is_on(job));
  CHECK(eventually([&] {
    const Status status = job.status();
    return status.ranks.at(0).state == "collecting" && status.ranks.at(1).state == "collecting";
  }));
  CHECK(job.status().epoch == before.epoch);
  CHECK(job.divergence().empty());
}

TEST_CASE("a hub that hangs costs no step, and the ranks are off when their lease is over") {
  AgentJob job(1, kOnForLong);
  REQUIRE(is_on(job));
  const pid_t hub = job.hub();
  REQUIRE(kill(hub, SIGSTOP) == 0);
  const auto begun = std::chrono::steady_clock::now();
  CHECK(eventually([&] { return job.rank(0).agent().status().state == "off"; }, seconds(20)));
  const auto lasted = std::chrono::steady_clock::now() - begun;
  CHECK(lasted > seconds(7));
  CHECK(lasted < seconds(14));
  CHECK(steps_on(job.rank(0)));
  CHECK(job.rank(0).longest_pause() < seconds(2));
  REQUIRE(kill(hub, SIGCONT) == 0);
  CHECK(is_on(job));
  CHECK(job.hub() == hub);
  CHECK(job.divergence().empty());
}

TEST_CASE("a job's directory that is removed is made anew and the job goes on") {
  AgentJob job(1, kOnForLong);
  REQUIRE(is_on(job));
  const Status before = job.status();
  fs::remove_all(job.directory().path.parent_path());
  REQUIRE(eventually([&] { return job.hub() > 1; }, seconds(5)));
  CHECK(job.status().epoch == before.epoch);
  CHECK(job.status().state == "on");
}

TEST_CASE("a forked child does not hold the connection open") {
  AgentJob job(1, kOff);
  REQUIRE(eventually([&] { return job.rank(0).agent().job().has_value(); }));
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  job.stop();
  CHECK(eventually([&] { return job.hub() == 0; }, seconds(4)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_CASE("where there is no hub's program training goes on off and the status says why") {
  const TemporaryDirectory scratch;
  AgentOptions options = options_in(scratch.path(), {});
  const auto with_hub = options.environment;
  options.environment = [with_hub](const char* name) {
    return std::string(name) == "GRADMON_HUB" ? std::nullopt : with_hub(name);
  };
  AgentRank rank(options, std::chrono::microseconds(500));
  CHECK(steps_on(rank));
  std::string reason;
  CHECK(eventually([&] {
    reason = rank.agent().status().reason;
    return reason.find("no hub on this host: ") == 0;
  }));
  CHECK(reason.find("gradmon-hub") != std::string::npos);
  CHECK(rank.agent().status().state == "off");
  CHECK_FALSE(rank.agent().job());
}

TEST_CASE("a hub's program that ends at once costs training nothing") {
  const TemporaryDirectory scratch;
  AgentOptions options = options_in(scratch.path(), {});
  const auto with_hub = options.environment;
  options.environment = [with_hub](const char* name) {
    return std::string(name) == "GRADMON_HUB" ? std::optional<std::string>("/bin/false") : with_hub(name);
  };
  AgentRank rank(options, std::chrono::microseconds(500));
  CHECK(steps_on(rank));
  CHECK(eventually([&] { return rank.agent().status().reason.find("no hub on this host: ") == 0; }));
}

// --- The launch id. ---

TEST_CASE("a launch id that is found later lets the rank join then") {
  auto known = std::make_shared<std::atomic<bool>>(false);
  const TemporaryDirectory scratch;
  AgentOptions options;
  options.launch_id_error = "the launch is not known yet";
  options.ask_for_launch_id = [known]() -> tl::expected<std::optional<LaunchId>, std::string> {
    if (!*known) return std::nullopt;
    return LaunchId{"found", "a test"};
  };
  options = options_in(scratch.path(), std::move(options));
  write_text(scratch / "config.json", kOff);
  AgentRank rank(options, std::chrono::microseconds(500));
  CHECK(steps_on(rank));
  CHECK(eventually([&] { return rank.agent().status().reason == "the launch is not known yet"; }));
  *known = true;
  CHECK(eventually([&] { return rank.agent().job().has_value(); }));
  CHECK(eventually([&] { return rank.agent().status().launch_id == "found"; }));
  rank.stop();
}

TEST_CASE("a launch id that nothing tells is said in the status and costs training nothing") {
  const TemporaryDirectory scratch;
  AgentOptions options;
  options.launch_id_error = "nothing names this launch";
  options.ask_for_launch_id = []() -> tl::expected<std::optional<LaunchId>, std::string> {
    throw std::runtime_error("no store");
  };
  AgentRank rank(options_in(scratch.path(), std::move(options)), std::chrono::microseconds(500));
  CHECK(steps_on(rank));
  CHECK(eventually([&] { return rank.agent().status().reason == "nothing names this launch: no store"; }));
}

}  // namespace
}  // namespace gradmon
