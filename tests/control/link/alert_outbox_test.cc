// SPDX-License-Identifier: Apache-2.0
#include "control/link/alert_outbox.h"

#include <thread>
#include <vector>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::seconds;

AlertReport report_of_step(std::int64_t step, std::size_t alerts = 1, std::uint64_t left_out = 0) {
  AlertReport report;
  report.alerts.resize(alerts);
  for (RankAlert& alert : report.alerts) alert.step = step;
  report.left_out = left_out;
  return report;
}

struct Outbox {
  const std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  AlertOutbox box{mailbox};
};

TEST_CASE("reports leave the outbox in the order in which they came, at a bounded rate") {
  Outbox out;
  const auto now = AlertOutbox::Clock::now() + seconds(100);
  for (int step = 0; step < 20; ++step) out.box.put(report_of_step(step));
  for (std::size_t i = 0; i < AlertOutbox::kReports.burst; ++i)
    CHECK(out.box.take(now)->alerts[0].step == static_cast<std::int64_t>(i));
  CHECK_FALSE(out.box.take(now));
  CHECK(out.box.take(now + seconds(1))->alerts[0].step == 16);
  CHECK(out.box.take(now + seconds(1))->alerts[0].step == 17);
  CHECK_FALSE(out.box.take(now + seconds(1)));
}

TEST_CASE("a full outbox keeps its first reports and counts all alerts") {
  Outbox out;
  for (int step = 0; step < 100; ++step) out.box.put(report_of_step(step, 20, 5));
  CHECK(out.box.raised() == 2'500);
  auto now = AlertOutbox::Clock::now();
  std::int64_t taken = 0;
  for (; const auto report = out.box.take(now); now += seconds(1)) {
    CHECK(report->alerts.size() == kMostAlertsInAReport);
    CHECK(report->left_out == 9);
    CHECK(report->alerts[0].step == taken++);
  }
  CHECK(taken == static_cast<std::int64_t>(AlertOutbox::kMostWaiting));
}

TEST_CASE("a full outbox takes the first report with a rule, also if the rule is not the report's first") {
  Outbox out;
  for (int step = 0; step < 100; ++step) out.box.put(report_of_step(step));
  for (int step = 100; step < 110; ++step) {
    AlertReport report = report_of_step(step, 2);
    report.alerts[1].rule = "AnomalyNan";
    out.box.put(std::move(report));
  }
  for (int step = 110; step < 1'000; ++step) {
    AlertReport report = report_of_step(step);
    report.alerts[0].rule = std::to_string(step);  // of a later release
    out.box.put(std::move(report));
  }
  std::vector<std::int64_t> taken;
  auto now = AlertOutbox::Clock::now();
  for (; const auto report = out.box.take(now); now += seconds(1)) taken.push_back(report->alerts[0].step);
  REQUIRE(taken.size() == AlertOutbox::kMostWaiting + 4);  // five rules with ""
  CHECK(taken[AlertOutbox::kMostWaiting] == 100);
}

TEST_CASE("an outbox wakes the agent, and outlives the agent's mailbox loop") {
  Outbox out;
  out.box.put(report_of_step(1));
  pollfd polled{out.mailbox->fd(), POLLIN, 0};
  CHECK(::poll(&polled, 1, 0) == 1);
  out.mailbox->close();
  out.box.put(report_of_step(2));
  CHECK(out.box.raised() == 2);
}

TEST_CASE("writers and the agent may use an outbox at the same time") {
  Outbox out;
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&] {
      for (int step = 0; step < 1'000; ++step) out.box.put(report_of_step(step));
    });
  }
  std::uint64_t taken = 0;
  auto now = AlertOutbox::Clock::now();
  while (out.box.raised() < 4'000) {
    if (out.box.take(now += seconds(1))) ++taken;
  }
  for (std::thread& writer : writers) writer.join();
  while (out.box.take(now += seconds(1))) ++taken;
  CHECK(taken >= AlertOutbox::kMostWaiting);
  CHECK(taken <= 4'000);
}

}  // namespace
}  // namespace gradmon
