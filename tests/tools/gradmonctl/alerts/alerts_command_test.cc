// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/alerts/alerts_command.h"

#include "control/debian_version.h"
#include "tests/tools/gradmonctl/alerts/sample_alerts.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tools/gradmonctl/alerts/alerts_view.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// The answer to a question with `after`.
CommandReply newer_than(std::uint64_t after) {
  CommandReply reply;
  for (const RankAlert& alert : sample_alerts().alerts) {
    if (alert.number > after) reply.alerts.push_back(alert);
  }
  return reply;
}

tl::expected<std::vector<RankAlert>, std::string> no_files() {
  return tl::unexpected<std::string>("no files");
}

struct Followed {
  FakeJob fake;
  std::optional<bool> lives = false;
  int interrupt_after = 1000;
  int pauses = 0;

  int follow(AlertsRequest request = {}) {
    request.follow = true;
    LiveJob job;
    job.ask = fake.ask();
    job.lives = [this] { return lives; };
    job.interrupted = [this] { return interrupt_after-- <= 0; };
    job.pause = [this](std::chrono::milliseconds) { ++pauses; };
    return follow_alerts(request, job, fake.console());
  }
};

TEST_CASE("alerts prints the job's answer, of one rank if asked") {
  FakeJob job;
  for (int i = 0; i < 3; ++i) job.answer(sample_alerts());
  AlertsRequest request;
  request.rank = 3;
  CHECK(alerts_command(request, job.ask(), no_files, job.console()) == 0);
  request.json = true;
  CHECK(alerts_command(request, job.ask(), no_files, job.console()) == 0);
  request.json = false;
  request.all = true;
  CHECK(alerts_command(request, job.ask(), no_files, job.console()) == 0);
  CHECK(job.out.str() == full_text(alert_groups_listing(sample_alerts())) +
                             alerts_json(sample_alerts(), JsonLayout::indented) +
                             full_text(alerts_listing(sample_alerts())));
  CHECK(job.asked[0].verb == CommandVerb::alerts);
  CHECK(job.asked[0].rank == 3);
}

TEST_CASE("alerts of a job that refuses or does not answer ends with its code") {
  FakeJob job;
  job.answer(reply_with(CommandOutcome::not_allowed, "no"));
  job.stay_silent();
  CHECK(alerts_command({}, job.ask(), no_files, job.console()) == 5);
  CHECK(alerts_command({}, job.ask(), no_files, job.console()) == 4);
  CHECK(job.out.str().empty());
}

TEST_CASE("the alerts of a job that does not answer are those of its files, of one rank if asked") {
  FakeJob job;
  for (int i = 0; i < 3; ++i) job.stay_silent();
  const auto files = [] { return tl::expected<std::vector<RankAlert>, std::string>(sample_alerts().alerts); };
  CHECK(alerts_command({}, job.ask(), files, job.console()) == 0);
  CHECK(job.err.str().find("; showing the alerts from the job's files\n") != std::string::npos);
  AlertsRequest of_one;
  of_one.rank = 0;
  of_one.json = true;
  CHECK(alerts_command(of_one, job.ask(), files, job.console()) == 0);
  CommandReply expected = sample_alerts();
  expected.raised_alerts = 5;
  std::string text = full_text(alert_groups_listing(expected));
  expected.alerts.erase(expected.alerts.begin(), expected.alerts.begin() + 2);
  expected.raised_alerts = 1;
  CHECK(job.out.str() == text + alerts_json(expected, JsonLayout::indented));
}

TEST_CASE("followed alerts are printed once each, until the job ends") {
  Followed job;
  job.fake.answer(newer_than(72));
  job.fake.answer(newer_than(73));
  job.fake.answer(newer_than(73));
  CHECK(job.follow() == 0);
  CHECK(job.fake.out.str() == alert_line(sample_alerts().alerts[2]));
  REQUIRE(job.fake.asked.size() == 5);
  CHECK(job.fake.asked[0].after == 0);
  CHECK(job.fake.asked[1].after == 73);
  CHECK(job.fake.err.str() == "gradmonctl: the job has ended\n");
  CHECK(job.pauses == 3);
}

TEST_CASE("alerts that do not fit into one answer are asked for at once, without a pause") {
  Followed job;
  job.fake.answer(newer_than(72));
  for (int number = 74; number < 77; ++number) {
    CommandReply next = newer_than(72);
    next.alerts[0].number = static_cast<std::uint64_t>(number);
    job.fake.answer(next);
  }
  job.fake.answer(newer_than(73));
  CHECK(job.follow() == 0);
  REQUIRE(job.fake.asked.size() == 7);
  CHECK(job.fake.asked[3].after == 75);
  CHECK(job.fake.asked[4].after == 76);
  CHECK(job.pauses == 2);  // after the answer without alerts, and after the first of two silences
}

TEST_CASE("an answer with alerts that are known already is not asked for again at once") {
  Followed job;
  job.fake.answer(newer_than(72));
  job.fake.answer(newer_than(72));
  CHECK(job.follow() == 0);
  CHECK(job.fake.asked.size() == 4);
  CHECK(job.pauses == 2);
}

TEST_CASE("a followed hub that restarts is waited for, and Ctrl-C ends the wait") {
  Followed job;
  job.lives = true;
  job.fake.answer(newer_than(72));
  job.interrupt_after = 8;
  CHECK(job.follow() == 0);
  CHECK(job.fake.asked.size() == 5);
}

TEST_CASE("followed alerts of a job on another host that is silent end with 4") {
  Followed job;
  job.lives = std::nullopt;
  AlertsRequest request;
  request.json = true;
  job.fake.answer(newer_than(72));
  CHECK(job.follow(request) == 4);
  CHECK(job.fake.out.str() == alert_json(sample_alerts().alerts[2]));
}

}  // namespace
}  // namespace gradmon
