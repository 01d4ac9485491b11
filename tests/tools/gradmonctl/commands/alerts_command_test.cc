// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <limits>

#include "control/wire/command.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/tools/gradmonctl/fake_job.h"
#include "tests/tools/gradmonctl/sample_status.h"
#include "tools/gradmonctl/commands/commands.h"

namespace gradmon {

// Three alerts of two ranks, one with a hostile text; two more were raised, with the first one.
inline CommandReply sample_alerts() {
  CommandReply reply;
  reply.raised_alerts = 5;
  reply.alerts.resize(3);
  Alert& spike = reply.alerts[0];
  spike = {71,      kSampleTime,
           Rank{3}, "AnomalySpike",
           1204,    0,
           1,       0,
           7,       "0:fc1.weight/rank3/post_grad",
           "norm",  27.7712,
           5.5514,  "",
           2};
  spike.message =
      "Rule AnomalySpike reports anomaly signal in ('0:fc1.weight/rank3/post_grad', 'norm') at step 1204, "
      "current value 27.7712, history mean 5.5514.";
  reply.alerts[1] = spike;
  reply.alerts[1].number = 72;
  reply.alerts[1].left_out = 0;
  reply.alerts[1].at += 2'000;
  reply.alerts[1].rule = "AnomalyNan";
  reply.alerts[1].step = 1206;
  reply.alerts[1].value = std::numeric_limits<double>::quiet_NaN() * -1;
  reply.alerts[1].history_mean = std::numeric_limits<double>::infinity();
  reply.alerts[2] = reply.alerts[1];
  reply.alerts[2].number = 73;
  reply.alerts[2].rank = Rank{0};
  reply.alerts[2].tag_name = "evil\x1b[31m\n";
  reply.alerts[2].message = "red \x1b[31m and \xff";
  return reply;
}

namespace {

TEST_CASE("the alerts look as in the golden files") {
  CHECK(golden_difference("alert_groups.txt", full_text(alert_groups_listing(sample_alerts()))) == "");
  CHECK(golden_difference("alerts.txt", full_text(alerts_listing(sample_alerts()))) == "");
  CHECK(golden_difference("alerts.json", alerts_json(sample_alerts(), JsonLayout::indented)) == "");
  std::string lines;
  for (const Alert& alert : sample_alerts().alerts) lines += alert_line(alert);
  CHECK(golden_difference("alerts_followed.txt", lines) == "");
}

TEST_CASE("the first step of each rule comes first, and a line has the ranks and series of its step") {
  CommandReply reply;
  const auto add = [&](std::int64_t step, const char* rule, int rank, std::uint64_t left_out) {
    Alert alert;
    alert.step = step;
    alert.rule = rule;
    alert.rank = Rank{rank};
    alert.tag_name = "0:loss/rank" + std::to_string(rank) + "/scalar";
    alert.value = 2.5;
    alert.left_out = left_out;
    reply.alerts.push_back(alert);
  };
  for (const std::int64_t step : {60, 61, 200}) add(step, "AnomalySpike", 3, 0);
  for (const int rank : {1, 0, 2}) add(160, "AnomalyNan", rank, rank == 1 ? 90 : 0);
  std::vector<std::string> lines;  // without the header
  std::istringstream text(full_text(alert_groups_listing(reply)));
  for (std::string line; std::getline(text, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first != std::string::npos && std::isdigit(static_cast<unsigned char>(line[first])) != 0)
      lines.push_back(line);
  }
  REQUIRE(lines.size() == 4);
  const std::vector<std::string> begins{"  60  AnomalySpike  3           1",
                                        " 160  AnomalyNan    0-2        93", "  61  AnomalySpike",
                                        " 200  AnomalySpike"};
  for (std::size_t i = 0; i < lines.size(); ++i) CHECK(lines[i].substr(0, begins[i].size()) == begins[i]);
}

TEST_CASE("a job without alerts says so") {
  CHECK(full_text(alert_groups_listing({})) == "no alert is listed\n");
  CHECK(full_text(alerts_listing({})) == "no alert is listed\n");
  CHECK(alerts_json({}, JsonLayout::one_line) == "{\"schema_version\":2,\"raised\":0,\"alerts\":[]}\n");
}

TEST_CASE("every line of followed alerts is a line, whatever the texts hold") {
  for (const Alert& alert : sample_alerts().alerts) {
    for (const std::string& line : {alert_line(alert), alert_json(alert)}) {
      CHECK(line.find('\n') == line.size() - 1);
      CHECK(line.find('\x1b') == std::string::npos);
    }
  }
}

// The answer to a question with `after`.
CommandReply newer_than(std::uint64_t after) {
  CommandReply reply;
  for (const Alert& alert : sample_alerts().alerts) {
    if (alert.number > after) reply.alerts.push_back(alert);
  }
  return reply;
}

tl::expected<std::vector<Alert>, std::string> no_files() { return tl::unexpected<std::string>("no files"); }

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
  FakeJob job{reply_with(CommandOutcome::not_allowed, "no")};
  job.stay_silent();
  CHECK(alerts_command({}, job.ask(), no_files, job.console()) == 5);
  CHECK(alerts_command({}, job.ask(), no_files, job.console()) == 4);
  CHECK(job.out.str().empty());
}

TEST_CASE("the alerts of a job that does not answer are those of its files, of one rank if asked") {
  FakeJob job;
  for (int i = 0; i < 3; ++i) job.stay_silent();
  const auto files = [] { return tl::expected<std::vector<Alert>, std::string>(sample_alerts().alerts); };
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
