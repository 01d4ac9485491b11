// SPDX-License-Identifier: Apache-2.0
// An agent sends its rank's alerts to the hub. The hub is scripted: one that takes alerts, and an older one.
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "control/debian_version.h"
#include "control/hub/transport/stream_server.h"
#include "control/link/agent.h"
#include "control/link/alert_outbox.h"
#include "tests/control/link/agent_job.h"
#include "tests/support/commits.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;

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
    for (RankAlert& alert : report.alerts) alert.step = step;
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

// --- With the real hub. ---

std::int64_t collected_under(const AgentRank& rank, std::uint64_t revision) {
  return std::count_if(rank.collected.begin(), rank.collected.end(),
                       [&](const auto& step) { return step.second == revision; });
}

TEST_CASE("an alert of one rank is listed, and starts a program and a capture on all ranks") {
  const TemporaryDirectory scratch;
  const std::filesystem::path program = scratch / "notify";
  write_text(program, "#!/bin/sh\ncat > \"$1.new\"\nmv \"$1.new\" \"$1\"\n");
  REQUIRE(::chmod(program.c_str(), 0700) == 0);
  const std::string told = (scratch / "told").string();
  AgentJob job(
      2, R"({"dynamic_on": true, "on_alert": {"collect": {"xy_distribution": true}, "times": 4, "exec": [")" +
             program.string() + R"(", ")" + told + R"("]}})");
  REQUIRE(eventually([&] { return job.status().state == "on"; }));
  AlertReport report;
  report.alerts.resize(1);
  report.alerts[0].rule = "AnomalyNan";
  report.left_out = 2;
  job.rank(1).agent().alert_outbox()->put(report);
  std::vector<HistoryEntry> history;
  REQUIRE(eventually([&] {
    history = commits_of(job.history());
    return history.size() == 3 && history[2].applied.size() == 2;
  }));
  CHECK(job.ask(CommandVerb::alerts).alerts.size() == 1);
  CHECK(eventually([&] { return job.status().ranks[1].alerts == 3; }));
  CHECK(eventually([&] { return std::filesystem::exists(told); }));
  CHECK(read_text(told).find("\"rule\":\"AnomalyNan\"") != std::string::npos);
  CHECK(job.divergence() == "");
  for (const int rank : {0, 1}) CHECK(collected_under(job.rank(rank), history[1].revision.value) == 4);
}

TEST_CASE("after the hub has died the next one lists new alerts with higher numbers") {
  AgentJob job(1, R"({"dynamic_on": false})");
  AlertReport report;
  report.alerts.resize(1);
  const auto listed = [&] { return job.ask(CommandVerb::alerts).alerts; };
  REQUIRE(eventually([&] { return job.status().ranks.size() == 1; }));
  job.rank(0).agent().alert_outbox()->put(report);
  REQUIRE(eventually([&] { return listed().size() == 1; }));
  const std::uint64_t before = listed()[0].number;
  const pid_t killed = job.hub_pid();
  REQUIRE(killed > 1);
  REQUIRE(::kill(killed, SIGKILL) == 0);
  REQUIRE(eventually([&] {
    const pid_t now = job.hub_pid();
    return now > 1 && now != killed;
  }));
  job.rank(0).agent().alert_outbox()->put(report);
  // The earlier alert is listed too, if it was written before the hub died.
  CHECK(eventually([&] {
    const auto alerts = listed();
    return !alerts.empty() && alerts.back().number > before;
  }));
}

}  // namespace
}  // namespace gradmon
