// SPDX-License-Identifier: Apache-2.0
#include "control/link/agent.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>

#include "control/debian_version.h"
#include "control/host/process_identity.h"
#include "tests/control/link/agent_job.h"
#include "tests/control/link/paused_child.h"
#include "tests/support/commits.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

const std::string kOff = R"({"dynamic_on": false})";
const std::string kOnForLong = R"({"dynamic_on": true, "collect_times": 100000000})";

bool keeps_stepping(AgentRank& rank, std::int64_t steps = 50) {
  const std::int64_t before = rank.step();
  return eventually([&] { return rank.step() >= before + steps; });
}

// Kills the hub and waits until another one listens.
void replace_hub(AgentJob& job) {
  const pid_t killed = job.hub_pid();
  REQUIRE(killed > 1);
  REQUIRE(kill(killed, SIGKILL) == 0);
  REQUIRE(eventually([&] {
    const pid_t now = job.hub_pid();
    return now > 1 && now != killed;
  }));
}

bool wait_until_on(AgentJob& job) {
  return eventually([&] {
    const Status status = job.status();
    return status.state == "on" && !status.pending;
  });
}

// --- The job. ---

TEST_CASE("a job of one rank that starts on collects its steps and is written back") {
  AgentJob job(1, R"({"dynamic_on": true, "collect_times": 2})");
  REQUIRE(eventually(
      [&] { return read_text(job.config_path()) == R"({"dynamic_on": false, "collect_times": 2})"; }));
  CHECK(job.status().reason.rfind("finished", 0) == 0);
  job.stop();
  CHECK(job.rank(0).collected.size() == 2);
}

TEST_CASE("a saved file switches all ranks at one step and the end of the plan is written back") {
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

TEST_CASE("the same request of several ranks' programs is one change on all ranks") {
  AgentJob job(2, kOff);
  Command on;
  on.verb = CommandVerb::on;
  on.request_id = "step 7 on";
  on.collect_times = 4;
  for (const int rank : {1, 0}) job.rank(rank).agent().submit(on);
  REQUIRE(eventually([&] { return job.ask(CommandVerb::verdict, "step 7 on").settled; }));
  CHECK(job.wait_until_settled("step 7 on").effective_step > 0);
  CHECK(read_text(job.config_path()).find(R"("collect_times": 4)") != std::string::npos);
  const auto history = commits_of(job.history());
  CHECK(std::count_if(history.begin(), history.end(),
                      [](const HistoryEntry& entry) { return entry.request_id == "step 7 on"; }) == 1);
  CHECK(history.front().by.find("the program of rank ") == 0);
  CHECK(job.divergence().empty());
}

TEST_CASE("every change in a quick series gets a verdict and the last one holds") {
  AgentJob job(2, kOff);
  for (int i = 0; i < 20; ++i)
    job.ask(i % 2 == 0 ? CommandVerb::on : CommandVerb::off, "r" + std::to_string(i));
  job.ask(CommandVerb::on, "last");
  CHECK(job.wait_until_settled("last").outcome == CommandOutcome::done);
  for (const HistoryEntry& entry : job.history()) {
    CAPTURE(entry.revision.value, entry.reason);
    CHECK(!entry.verdict.empty());
  }
  for (int i = 0; i < 20; ++i) {
    CAPTURE(i);
    CHECK(eventually([&] { return job.ask(CommandVerb::verdict, "r" + std::to_string(i)).settled; }));
  }
  CHECK(job.status().state == "on");
  CHECK(job.divergence().empty());
}

TEST_CASE("rank 0's agent knows the status of the job and every agent the job's identity") {
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

TEST_CASE("a second process with a rank's number is refused and its training goes on") {
  AgentJob job(1, kOff);
  REQUIRE(eventually([&] { return job.rank(0).agent().job().has_value(); }));
  AgentRank second(job.options(0), std::chrono::microseconds(500));
  CHECK(keeps_stepping(second, 10));
  CHECK(eventually([&] {
    return second.agent().status().reason.find("rank 0 already belongs to pid ") != std::string::npos;
  }));
  CHECK(job.status().ranks.at(0).state == "idle");
}

// --- The hub's process. ---

TEST_CASE("the hub ends after the last rank and leaves only its log") {
  AgentJob job(2, kOff);
  REQUIRE(eventually([&] { return job.rank(1).agent().job() && job.rank(0).agent().job(); }));
  job.stop();
  CHECK(eventually([&] { return job.hub_pid() == 0; }));
  std::string left;  // It closes its socket before it removes its other files.
  CHECK(eventually([&] {
    left.clear();
    for (const auto& file : fs::directory_iterator(job.directory().path))
      if (file.path().filename() != "hub.log") left += file.path().filename().string() + ' ';
    return left.empty();
  }));
  CHECK(left.empty());
}

TEST_CASE("a killed hub restarts with its epoch and its plan and no step is delayed by 2 s") {
  AgentJob job(2, kOnForLong);
  REQUIRE(wait_until_on(job));
  job.rank(0).forget_pauses();  // A first step may wait for 2 s.
  const Status before = job.status();
  for (int i = 0; i < 2; ++i) {
    replace_hub(job);
    REQUIRE(wait_until_on(job));
  }
  CHECK(job.status().epoch == before.epoch);
  CHECK(job.status().effective_step == before.effective_step);
  CHECK(commits_of(job.history()).size() <= 1);  // no resync was needed
  job.ask(CommandVerb::off, "off");
  CHECK(job.wait_until_settled("off").outcome == CommandOutcome::done);
  CHECK(job.rank(0).longest_pause() < seconds(2));
  CHECK(job.divergence().empty());
  const auto& collected = job.rank(0).collected;
  REQUIRE_FALSE(collected.empty());
  // No step between the first and the last is missing.
  CHECK(collected.rbegin()->first - collected.begin()->first + 1 ==
        static_cast<std::int64_t>(collected.size()));
}

TEST_CASE("a config of nearly 1 MiB is agreed on and survives the hub's death") {
  AgentJob job(2, kOff);
  REQUIRE(eventually([&] { return job.status().reason == "never turned on"; }));
  write_text(job.config_path(), R"({"dynamic_on": true, "collect_times": 100000000, "note": ")" +
                                    std::string((1U << 20U) - 100, 'x') + "\"}");
  REQUIRE(wait_until_on(job));
  const Status before = job.status();
  replace_hub(job);
  REQUIRE(wait_until_on(job));
  CHECK(eventually([&] {
    const Status status = job.status();
    return status.ranks.at(0).state == "collecting" && status.ranks.at(1).state == "collecting";
  }));
  CHECK(job.status().epoch == before.epoch);
  CHECK(job.divergence().empty());
}

TEST_CASE("a hub that hangs delays no step by 2 s and the ranks go off when their lease expires") {
  AgentJob job(1, kOnForLong);
  REQUIRE(wait_until_on(job));
  job.rank(0).forget_pauses();  // A first step may wait for 2 s.
  const pid_t hub = job.hub_pid();
  REQUIRE(hub > 1);
  REQUIRE(kill(hub, SIGSTOP) == 0);
  const auto begun = std::chrono::steady_clock::now();
  CHECK(eventually([&] { return job.rank(0).agent().status().state == "off"; }));
  const auto lasted = std::chrono::steady_clock::now() - begun;
  CHECK(lasted > seconds(7));
  CHECK(lasted < seconds(30));
  CHECK(keeps_stepping(job.rank(0)));
  CHECK(job.rank(0).longest_pause() < seconds(2));
  REQUIRE(kill(hub, SIGCONT) == 0);
  CHECK(wait_until_on(job));
  CHECK(job.hub_pid() == hub);
  CHECK(job.divergence().empty());
}

TEST_CASE("a job directory that is removed is created again and the job goes on") {
  AgentJob job(1, kOnForLong);
  REQUIRE(wait_until_on(job));
  const Status before = job.status();
  remove_whole(job.directory().path.parent_path());
  REQUIRE(eventually([&] { return job.hub_pid() > 1; }));
  CHECK(job.status().epoch == before.epoch);
  CHECK(job.status().state == "on");
}

TEST_CASE("a forked child does not hold the connection open") {
  AgentJob job(1, kOff);
  REQUIRE(eventually([&] { return job.rank(0).agent().job().has_value(); }));
  const PausedChild child;
  job.stop();
  CHECK(eventually([&] { return job.hub_pid() == 0; }));
}

TEST_CASE("training waits less than max_wait without a hub program and the status says why") {
  const TemporaryDirectory scratch;
  AgentOptions options = options_in(scratch.path(), {});
  const auto with_hub = options.environment;
  options.environment = [with_hub](const char* name) {
    return std::string(name) == "GRADMON_HUB" ? std::nullopt : with_hub(name);
  };
  AgentRank rank(options, std::chrono::microseconds(500));
  CHECK(keeps_stepping(rank));
  std::string reason;
  CHECK(eventually([&] {
    reason = rank.agent().status().reason;
    return reason.find("no hub on this host: ") == 0;
  }));
  CHECK(rank.longest_pause() < seconds(2));
  CHECK(reason.find("gradmon-hub") != std::string::npos);
  CHECK(rank.agent().status().state == "off");
  CHECK_FALSE(rank.agent().job());
}

TEST_CASE("training waits less than max_wait if the hub program ends at once") {
  const TemporaryDirectory scratch;
  AgentOptions options = options_in(scratch.path(), {});
  const auto with_hub = options.environment;
  options.environment = [with_hub](const char* name) {
    return std::string(name) == "GRADMON_HUB" ? std::optional<std::string>("/bin/false") : with_hub(name);
  };
  AgentRank rank(options, std::chrono::microseconds(500));
  CHECK(keeps_stepping(rank));
  CHECK(eventually([&] { return rank.agent().status().reason.find("no hub on this host: ") == 0; }));
  CHECK(rank.longest_pause() < seconds(2));
}

TEST_CASE("a rank that joins forgets why the lead hub was not reached before") {
  const TemporaryDirectory scratch;
  write_text(scratch / "config.json", kOff);
  AgentOptions options = options_in(scratch.path(), {});
  options.world_size = 2;
  options.rank = Rank{1};
  AgentRank rank1(options, std::chrono::microseconds(500));
  CHECK(eventually([&] {
    return rank1.agent().status().reason.find("the lead hub is not found yet") != std::string::npos;
  }));
  options.rank = Rank{0};
  AgentRank rank0(options, std::chrono::microseconds(500));
  CHECK(eventually([&] { return rank1.agent().job() && rank1.agent().status().reason.empty(); }));
  rank0.stop();
  rank1.stop();
  wait_for_end_of_hub(make_job_directory(options.launch_id, job_bases(options.environment)).value().socket());
}

// --- The launch id. ---

TEST_CASE("a rank joins once its launch id is found") {
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
  CHECK(keeps_stepping(rank));
  CHECK(eventually([&] { return rank.agent().status().reason == "the launch is not known yet"; }));
  *known = true;
  CHECK(eventually([&] { return rank.agent().job().has_value(); }));
  CHECK(eventually([&] { return rank.agent().status().launch_id == "found"; }));
  rank.stop();
  wait_for_end_of_hub(make_job_directory("found", job_bases(options.environment)).value().socket());
}

TEST_CASE("training goes on without a launch id and the status says why") {
  const TemporaryDirectory scratch;
  AgentOptions options;
  options.launch_id_error = "nothing names this launch";
  options.ask_for_launch_id = []() -> tl::expected<std::optional<LaunchId>, std::string> {
    throw std::runtime_error("no store");
  };
  AgentRank rank(options_in(scratch.path(), std::move(options)), std::chrono::microseconds(500));
  CHECK(keeps_stepping(rank));
  CHECK(eventually([&] { return rank.agent().status().reason == "nothing names this launch: no store"; }));
}

}  // namespace
}  // namespace gradmon
