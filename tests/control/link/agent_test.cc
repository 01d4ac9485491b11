// SPDX-License-Identifier: Apache-2.0
#include "control/link/agent.h"

#include <signal.h>

#include <stdexcept>

#include "control/host/child_process.h"
#include "control/hub/transport/stream_server.h"
#include "control/link/report_outbox.h"
#include "tests/control/link/agent_job.h"
#include "tests/support/catch.h"
#include "tests/support/commits.h"

namespace gradmon {
namespace {

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

TEST_CASE("rank 0's agent knows the status of the job and every agent the job's identity") {
  AgentJob job(2, kOff);
  REQUIRE(eventually([&] {
    const Status status = job.rank(0).agent().status();
    return status.ranks.size() == 2 && status.ranks[1].state == "idle";
  }));
  REQUIRE(
      eventually([&] { return job.rank(1).agent().job_lookup()() && job.rank(0).agent().job_lookup()(); }));
  CHECK(job.rank(0).agent().job_lookup()()->run_id == job.rank(1).agent().job_lookup()()->run_id);
  CHECK(job.rank(0).agent().job_lookup()()->epoch == job.status().epoch);
  CHECK(job.rank(1).agent().status().ranks.at(0).rank == Rank{1});
}

// --- The hub's process. ---

TEST_CASE("a killed hub restarts with its epoch and a plan of nearly 1 MiB and no step is delayed by 2 s") {
  AgentJob job(2, R"({"dynamic_on": true, "collect_times": 100000000, "note": ")" +
                      std::string((1U << 20U) - 100, 'x') + "\"}");
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

TEST_CASE(
    "training waits less than max_wait if the hub program is missing or ends, and the status says why") {
  const auto program = GENERATE(std::optional<std::string>(), std::optional<std::string>("/bin/false"));
  const TemporaryDirectory scratch;
  AgentOptions options = options_in(scratch.path(), {});
  const auto with_hub = options.environment;
  options.environment = [&](const char* name) {
    return std::string(name) == "GRADMON_HUB" ? program : with_hub(name);
  };
  AgentRank rank(options, std::chrono::microseconds(500));
  CHECK(keeps_stepping(rank));
  std::string reason;
  CHECK(eventually([&] {
    reason = rank.agent().status().reason;
    return reason.find("no hub on this host: ") == 0;
  }));
  CHECK(rank.longest_pause() < seconds(2));
  CHECK(reason.find(program.value_or("gradmon-hub")) != std::string::npos);
  CHECK(rank.agent().status().state == "off");
  CHECK_FALSE(rank.agent().job_lookup()());
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
  CHECK(eventually([&] { return rank1.agent().job_lookup()() && rank1.agent().status().reason.empty(); }));
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
  CHECK(eventually([&] { return rank.agent().job_lookup()().has_value(); }));
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

class ScriptedHub {
 public:
  ScriptedHub(const JobDirectory& directory, bool takes_alerts) : takes_alerts_(takes_alerts) {
    auto server = StreamServer::listen(directory.socket(), {});
    if (!server) throw std::runtime_error(server.error());
    server_ = std::move(*server);
  }

  std::vector<AlertReport> reports;
  std::vector<std::uint64_t> counts;  // Progress::alerts of each Progress

  // Serves the agent until the condition holds; false after 20 s.
  bool until(const std::function<bool()>& condition) {
    return eventually([&] {
      std::vector<pollfd> polled;
      server_->add_to(polled);
      ::poll(polled.data(), polled.size(), 10);
      server_->handle(polled, {[this](Peer peer, std::string&& bytes) { on_frame(peer, bytes); },
                               [](Peer, StreamServer::Closed, const std::string&) {}});
      return condition();
    });
  }

 private:
  void on_frame(Peer peer, const std::string& bytes) {
    auto frame = decode_frame(bytes);
    REQUIRE(frame);
    if (std::holds_alternative<Introduction>(*frame)) return server_->admit(peer, kMaxFrameBytes);
    const auto* bundles = std::get_if<Bundles>(&*frame);
    if (bundles == nullptr) return;
    for (const Bundle& bundle : *bundles) {
      if (const auto* hello = std::get_if<Hello>(&bundle.message)) {
        Welcome welcome;
        welcome.process_id = hello->process_id;
        welcome.incarnation = 1;
        welcome.number = hello->number;
        welcome.run_id = "0badcafe";
        welcome.epoch_order = 1;
        welcome.takes_alerts = takes_alerts_;
        static_cast<void>(server_->send(peer, encode(Frame(Bundles{{"epoch", {{0, 1}}, welcome}}))));
      } else if (const auto* report = std::get_if<AlertReport>(&bundle.message)) {
        reports.push_back(*report);
      } else if (const auto* progress = std::get_if<Progress>(&bundle.message)) {
        counts.push_back(progress->alerts);
      }
    }
  }

  const bool takes_alerts_;
  std::unique_ptr<StreamServer> server_;
};

struct AlertingRank {
  explicit AlertingRank(bool hub_takes_alerts)
      : options(options_in(scratch.path(), {})),
        directory(*make_job_directory(options.launch_id, job_bases(options.environment))),
        hub(directory, hub_takes_alerts) {
    rank = std::make_unique<AgentRank>(options, std::chrono::microseconds(500));
    REQUIRE(hub.until([&] { return !hub.counts.empty(); }));
  }
  void raise(std::int64_t step, std::size_t alerts, std::uint64_t left_out) {
    AlertReport report;
    report.alerts.resize(alerts);
    for (Alert& alert : report.alerts) alert.step = step;
    report.left_out = left_out;
    rank->agent().alert_outbox()->put(std::move(report));
  }

  const TemporaryDirectory scratch;
  const AgentOptions options;
  const JobDirectory directory;
  ScriptedHub hub;
  std::unique_ptr<AgentRank> rank;
};

TEST_CASE("an agent sends the alerts of its rank, and counts those that it cannot send") {
  AlertingRank alerting(true);
  for (int step = 0; step < 100; ++step) alerting.raise(step, 2, 1);
  REQUIRE(alerting.hub.until([&] {
    return alerting.hub.reports.size() >= AlertOutbox::kReports.burst && alerting.hub.counts.back() == 300;
  }));
  CHECK(alerting.hub.reports[0].alerts.size() == 2);
  CHECK(alerting.hub.reports[0].left_out == 1);
  for (std::size_t i = 0; i < AlertOutbox::kReports.burst; ++i)
    CHECK(alerting.hub.reports[i].alerts[0].step == static_cast<std::int64_t>(i));
  CHECK(alerting.hub.reports.size() < 100);
}

TEST_CASE("an older hub gets no alerts, and training goes on") {
  AlertingRank alerting(false);
  alerting.raise(1, 2, 0);
  const std::size_t before = alerting.hub.counts.size();
  const std::int64_t step = alerting.rank->step();
  REQUIRE(alerting.hub.until([&] { return alerting.hub.counts.size() >= before + 3; }));
  CHECK(alerting.hub.counts.back() == 2);
  CHECK(alerting.hub.reports.empty());
  CHECK(alerting.rank->step() > step);
}

}  // namespace
}  // namespace gradmon
