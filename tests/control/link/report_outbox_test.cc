// SPDX-License-Identifier: Apache-2.0
#include "control/link/report_outbox.h"

#include <thread>

#include "tests/support/catch.h"

namespace gradmon {
namespace {

using std::chrono::seconds;

AlertReport report_of_step(std::int64_t step, std::size_t alerts = 1, std::uint64_t left_out = 0) {
  AlertReport report;
  report.alerts.resize(alerts);
  for (Alert& alert : report.alerts) alert.step = step;
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

ReplicaStep step_of(std::int64_t step, std::size_t parameters = 1) {
  ReplicaTargets targets;
  for (std::size_t i = 0; i < parameters; ++i) targets.emplace_back(0, "p" + std::to_string(i));
  ReplicaRows rows{Revision{1},
                   step,
                   Kind::param_updated,
                   bit_of(Op::norm),
                   std::make_shared<const ReplicaTargets>(std::move(targets)),
                   std::vector<double>(parameters, static_cast<double>(step))};
  return {{9, 4}, 1e-5, {std::move(rows)}};
}

ReplicaRequest request_of(std::int64_t step) {
  return {Revision{1}, step, static_cast<std::int64_t>(Kind::param_updated),
          static_cast<std::int64_t>(ReplicaTarget(0, "p0").bucket())};
}

struct ReplicaBox {
  const std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  ReplicaOutbox box{mailbox};
  ReplicaOutbox::Clock::time_point now = ReplicaOutbox::Clock::now() + seconds(100);
};

TEST_CASE("digests leave the outbox in their order, many in a message, at a bounded rate") {
  ReplicaBox out;
  for (int step = 0; step < 60; ++step) out.box.put(step_of(step));
  const auto first = out.box.take(out.now);
  REQUIRE(first);
  CHECK(first->group == 9);
  CHECK(first->group_size == 4);
  REQUIRE(first->digests.size() == kMostReplicaDigests);
  CHECK(is_valid(*first));
  CHECK(first->digests[47].step == 47);
  CHECK(out.box.take(out.now)->digests.size() == 60 - kMostReplicaDigests);
  CHECK_FALSE(out.box.take(out.now));
  std::size_t sent = 2;
  for (int step = 60; step < 100; ++step) {
    out.box.put(step_of(step));
    if (out.box.take(out.now)) ++sent;
  }
  CHECK(sent == ReplicaOutbox::kMessages.burst);
  CHECK(out.box.take(out.now + seconds(1))->digests.size() == 26);
}

TEST_CASE("digests that the hub does not take are dropped and counted") {
  ReplicaBox out;
  for (int step = 0; step < 1'000; ++step) out.box.put(step_of(step));
  CHECK(out.box.dropped() == 1'000 - ReplicaOutbox::kMostWaiting);
  CHECK(out.box.take(out.now)->digests[0].step == 0);
}

TEST_CASE("a request is answered with the values of its step, and without rows if the step is forgotten") {
  ReplicaBox out;
  CHECK_FALSE(out.box.answer(request_of(1), out.now));
  for (int step = 0; step < 10; ++step) out.box.put(step_of(step));
  const auto answer = out.box.answer(request_of(7), out.now);
  REQUIRE(answer);
  CHECK(is_valid(*answer));
  CHECK(answer->group == 9);
  CHECK(answer->threshold == 1e-5);
  CHECK(answer->request.step == 7);
  REQUIRE(answer->rows.size() == 1);
  CHECK(answer->rows[0].name == "p0");
  CHECK(answer->rows[0].values[0].value == 7);
  CHECK(out.box.answer(request_of(10), out.now)->rows.empty());
  const std::size_t many =
      ReplicaOutbox::kMostKept / 8 / sizeof(double) - 64;  // eight steps fit, of shared targets
  ReplicaStep large = step_of(0, many);
  const auto targets = large.kinds[0].targets;
  for (int step = 10; step < 40; ++step) {
    large = step_of(step, many);
    large.kinds[0].targets = targets;
    out.box.put(large);
  }
  CHECK(out.box.answer(request_of(7), out.now)->rows.empty());
  CHECK(out.box.answer(request_of(32), out.now)->rows.size() == kMostReplicaRows);
  CHECK(out.box.answer(request_of(31), out.now)->rows.empty());
}

TEST_CASE("targets that change from step to step, and steps of few values, count towards the memory") {
  for (const std::size_t parameters : {std::size_t{1}, std::size_t{100}}) {
    ReplicaBox out;
    const std::size_t least = sizeof(ReplicaRows) + parameters * (sizeof(double) + sizeof(ReplicaTarget));
    const auto steps = static_cast<std::int64_t>(ReplicaOutbox::kMostKept / least);  // more do not fit
    for (std::int64_t step = 0; step <= steps; ++step) out.box.put(step_of(step, parameters));
    CHECK(out.box.answer(request_of(0), out.now)->rows.empty());
    CHECK_FALSE(out.box.answer(request_of(steps), out.now)->rows.empty());
  }
}

TEST_CASE("a flood of requests is answered at a bounded rate") {
  ReplicaBox out;
  out.box.put(step_of(1));
  std::size_t answered = 0;
  for (int i = 0; i < 10'000; ++i) answered += out.box.answer(request_of(1), out.now) ? 1 : 0;
  CHECK(answered == ReplicaOutbox::kAnswers.burst);
}

TEST_CASE("a writer and the agent may use an outbox at the same time") {
  ReplicaBox out;
  std::thread writer([&] {
    for (int step = 0; step < 2'000; ++step) out.box.put(step_of(step, 8));
  });
  std::uint64_t taken = 0;
  auto now = out.now;
  for (int i = 0; i < 2'000; ++i) {
    if (const auto message = out.box.take(now += seconds(1))) taken += message->digests.size();
    static_cast<void>(out.box.answer(request_of(i), now));
  }
  writer.join();
  while (const auto message = out.box.take(now += seconds(1))) taken += message->digests.size();
  CHECK(taken + out.box.dropped() == 2'000);
}

}  // namespace
}  // namespace gradmon
