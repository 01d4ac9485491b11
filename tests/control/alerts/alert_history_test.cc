// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/alert_history.h"

#include <limits>

#include "control/alerts/alert_report.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

constexpr std::size_t kAllBytes = std::numeric_limits<std::size_t>::max();

AlertReport report_of_step(std::int64_t step, std::size_t alerts = 1, const std::string& rule = "") {
  AlertReport report;
  report.alerts.resize(alerts);
  for (Alert& alert : report.alerts) {
    alert.step = step;
    alert.rule = rule;
  }
  return report;
}

std::vector<std::int64_t> steps_of(const std::vector<Alert>& alerts) {
  std::vector<std::int64_t> steps;
  for (const Alert& alert : alerts) steps.push_back(alert.step);
  return steps;
}

TEST_CASE("alerts are numbered in the order in which they arrive and carry their rank and time") {
  AlertHistory history(100);
  AlertReport forged = report_of_step(7, 2);
  forged.alerts[0].rank = Rank{9};
  forged.alerts[0].number = 5;
  forged.alerts[0].at = 6;
  const auto kept = history.add(Rank{3}, "process", forged, 1'000);
  REQUIRE(kept.size() == 2);
  CHECK((kept[0].number == 100 && kept[1].number == 101));
  CHECK((kept[0].rank == Rank{3} && kept[0].at == 1'000));
  CHECK(history.find({0, {}, kAllBytes}).size() == 2);
}

TEST_CASE("a query gives the newest alerts, or those after a number, of a rank, within its bytes") {
  AlertHistory history(1);
  for (int step = 0; step < 6; ++step) history.add(Rank{step % 2}, "p", report_of_step(step), 0);
  CHECK(steps_of(history.find({0, {}, kAllBytes})) == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
  CHECK(steps_of(history.find({4, {}, kAllBytes})) == std::vector<std::int64_t>{4, 5});
  CHECK(steps_of(history.find({0, 1, kAllBytes})) == std::vector<std::int64_t>{1, 3, 5});
  CHECK(steps_of(history.find({2, 1, kAllBytes})) == std::vector<std::int64_t>{3, 5});
  CHECK(steps_of(history.find({0, {}, 2 * size_of(Alert{})})) == std::vector<std::int64_t>{0, 5});
  CHECK(history.find({6, {}, kAllBytes}).empty());
  CHECK(history.find({7, {}, kAllBytes}).empty());
}

TEST_CASE("a caller that asks again with the last number misses no alert, however few fit into an answer") {
  AlertHistory history(100);
  for (int step = 0; step < 6; ++step) history.add(Rank{step % 2}, "p", report_of_step(step), 0);
  const std::size_t two = 2 * size_of(Alert{});
  CHECK(steps_of(history.find({101, {}, two})) == std::vector<std::int64_t>{2, 3});
  CHECK(steps_of(history.find({103, {}, two})) == std::vector<std::int64_t>{4, 5});
  CHECK(history.find({105, {}, two}).empty());
  CHECK(steps_of(history.find({99, 1, two})) == std::vector<std::int64_t>{1, 3});
  CHECK(steps_of(history.find({103, 1, two})) == std::vector<std::int64_t>{5});
}

TEST_CASE("a rank that floods the history keeps only its own share") {
  AlertHistory history(1);
  history.add(Rank{1}, "quiet", report_of_step(-1), 0);
  for (int step = 0; step < 1'000; ++step) history.add(Rank{0}, "loud", report_of_step(step, 16), 0);
  CHECK(history.find({0, 1, kAllBytes}).size() == 1);
  const auto loud = history.find({0, 0, kAllBytes});
  REQUIRE(loud.size() == AlertHistory::kMostFirstOfARank + AlertHistory::kMostKeptOfARank);
  for (std::size_t i = 0; i < AlertHistory::kMostFirstOfARank; ++i)
    CHECK(loud[i].step == static_cast<std::int64_t>(i));
  CHECK((loud[AlertHistory::kMostFirstOfARank].step == 984 && loud.back().step == 999));
  CHECK(history.listed(Rank{0}) == 16'000);
}

TEST_CASE("the first alert of each rule and step stays, whatever comes after it") {
  AlertHistory history(1);
  const auto add = [&](int rank, std::int64_t step, const std::string& rule) {
    history.add(Rank{rank}, "p", report_of_step(step, 16, rule), 0);
  };
  for (int rank = 0; rank < 64; ++rank) add(rank, 60, "AnomalySpike");
  for (std::int64_t step = 0; step < 100; ++step) {
    for (int rank = 0; rank < 64; ++rank) add(rank, 1'000 + step, "AnomalySpike");
  }
  for (int rank = 0; rank < 64; ++rank) add(rank, 2'000, "AnomalyNan");
  for (std::int64_t step = 0; step < 100; ++step) {
    for (int rank = 0; rank < 64; ++rank) add(rank, 3'000 + step, "rule " + std::to_string(step));
  }
  std::vector<std::pair<std::int64_t, std::string>> first;
  for (const Alert& alert : history.first()) {
    if (alert.step < 1'000 || alert.step == 2'000) first.emplace_back(alert.step, alert.rule);
  }
  CHECK(first ==
        std::vector<std::pair<std::int64_t, std::string>>{{60, "AnomalySpike"}, {2'000, "AnomalyNan"}});
  CHECK(history.first().size() <= 3 * AlertHistory::kMostFirstOfARule);
  const auto all = history.find({0, {}, kAllBytes});
  CHECK((all.front().step == 60 && all.front().rank == Rank{0}));
  CHECK(all.size() == history.first().size() + AlertHistory::kMostKept);
  const std::size_t few = 20 * size_of(all.front());
  const auto some = history.find({0, {}, few});
  CHECK((some.front().number == all.front().number && some.back().number == all.back().number));
  CHECK((some.size() >= 18 && some.size() <= 22));
  const auto later = history.find({all.front().number, {}, few});
  CHECK(later.front().number == all[1].number);
}

TEST_CASE("the steps that stay are bounded for each rule, and for each rule of a rank") {
  AlertHistory history(1);
  for (std::int64_t step = 0; step < 10'000; ++step)
    history.add(Rank{static_cast<int>(step % 16)}, "p", report_of_step(step, 1, "AnomalySpike"), 0);
  CHECK(history.first().size() == AlertHistory::kMostFirstOfARule);
  for (std::int64_t step = 0; step < 100; ++step)
    history.add(Rank{0}, "p", report_of_step(step, 1, "AnomalyNan"), 0);
  CHECK(history.first().size() == AlertHistory::kMostFirstOfARule + AlertHistory::kMostFirstOfARank);
}

TEST_CASE("the whole history is bounded and forgets the oldest alert first") {
  AlertHistory history(1);
  const int ranks = 40;
  for (int i = 0; i < 40 * 150; ++i) history.add(Rank{i % ranks}, "p", report_of_step(i), 0);
  const auto kept = history.find({0, {}, kAllBytes});
  REQUIRE(kept.size() == AlertHistory::kMostFirstOfARule + AlertHistory::kMostKept);
  CHECK((kept.front().step == 0 && kept.back().step == 5'999));
  CHECK(kept[AlertHistory::kMostFirstOfARule].step == 6'000 - 4'096);
}

TEST_CASE("a new process of a rank starts its count anew") {
  AlertHistory history(1);
  history.add(Rank{0}, "one", report_of_step(1, 3), 0);
  CHECK(history.listed(Rank{0}) == 3);
  history.add(Rank{0}, "two", report_of_step(1), 0);
  CHECK(history.listed(Rank{0}) == 1);
  CHECK(history.listed(Rank{7}) == 0);
}

std::vector<AlertHistory::Kept> earlier_alerts(std::uint64_t first, std::uint64_t count, int rank,
                                               const std::string& process_id) {
  std::vector<AlertHistory::Kept> earlier(count);
  for (AlertHistory::Kept& kept : earlier) {
    kept.alert.number = first++;
    kept.alert.step = static_cast<std::int64_t>(kept.alert.number);
    kept.alert.rank = Rank{rank};
    kept.process_id = process_id;
  }
  return earlier;
}

TEST_CASE("the alerts of an earlier hub come before those of this one and count for the same process alone") {
  AlertHistory history(100);
  history.add(Rank{1}, "new", report_of_step(200), 0);
  std::vector<AlertHistory::Kept> earlier = earlier_alerts(5, 2, 0, "process");
  for (auto& kept : earlier_alerts(7, 3, 1, "old")) earlier.push_back(kept);
  for (auto& kept : earlier_alerts(100, 1, 0, "process")) earlier.push_back(kept);  // not older
  history.restore(earlier);
  CHECK(steps_of(history.find({0, {}, kAllBytes})) == std::vector<std::int64_t>{5, 6, 7, 8, 9, 200});
  CHECK(history.listed(Rank{0}) == 2);
  CHECK(history.listed(Rank{1}) == 1);
  history.add(Rank{0}, "process", report_of_step(201), 0);
  CHECK(history.listed(Rank{0}) == 3);
  history.add(Rank{0}, "another", report_of_step(202), 0);
  CHECK(history.listed(Rank{0}) == 1);
}

TEST_CASE("the alerts of an earlier hub keep the bounds and the newest find room") {
  AlertHistory history(10'000'000);
  history.add(Rank{0}, "p", report_of_step(-1), 0);
  std::vector<AlertHistory::Kept> earlier;
  for (int rank = 0; rank < 20; ++rank) {
    for (auto& kept : earlier_alerts(static_cast<std::uint64_t>(1 + rank * 1'000), 400, rank, "p"))
      earlier.push_back(kept);
  }
  history.restore(earlier);
  CHECK(history.find({0, {}, kAllBytes}).size() == AlertHistory::kMostFirstOfARule + AlertHistory::kMostKept);
  CHECK(history.find({0, 19, kAllBytes}).size() == AlertHistory::kMostKeptOfARank);
  CHECK(history.find({0, 19, kAllBytes}).back().step == 19'400);
  CHECK(history.find({0, 0, kAllBytes}).back().step == -1);
}

TEST_CASE("numbers rise over a restart even if the clock was set back") {
  AlertHistory history(5);
  history.restore(earlier_alerts(100, 3, 0, "p"));
  const auto added = history.add(Rank{0}, "p", report_of_step(9), 0);
  REQUIRE(added.size() == 1);
  CHECK(added[0].number == 103);
  CHECK(steps_of(history.find({102, {}, kAllBytes})) == std::vector<std::int64_t>{9});
  CHECK(history.find({103, {}, kAllBytes}).empty());
}

AlertReport report_of(const std::vector<std::int64_t>& steps) {
  AlertReport report;
  for (const std::int64_t step : steps) {
    Alert& alert = report.alerts.emplace_back();
    alert.rule = "AnomalyRankDivergence";
    alert.step = step;
    alert.tag_name = "0:fc1.weight/rank1/post_grad";
    alert.op = "norm";
  }
  return report;
}

std::vector<std::int64_t> steps_of(const AlertReport& report) {
  std::vector<std::int64_t> steps;
  for (const Alert& alert : report.alerts) steps.push_back(alert.step);
  return steps;
}

std::vector<std::int64_t> steps_of(const std::vector<UnraisedAlerts::Told>& told) {
  std::vector<std::int64_t> steps;
  for (const UnraisedAlerts::Told& one : told) steps.push_back(one.alert.step);
  return steps;
}

using Steps = std::vector<std::int64_t>;
const auto everybody = [](Rank, const std::string&) { return true; };
const auto nobody = [](Rank, const std::string&) { return false; };

TEST_CASE("alerts of a process that has ended are taken once, those of others stay") {
  UnraisedAlerts unraised;
  unraised.tell(Rank{1}, "first", report_of({4, 5}));
  unraised.tell(Rank{2}, "second", report_of({5}));
  CHECK(unraised.take_orphans(nobody).empty());
  const auto of_first = [](Rank rank, const std::string& process) {
    return rank == Rank{1} && process == "first";
  };
  const auto orphans = unraised.take_orphans(of_first);
  CHECK(steps_of(orphans) == Steps{4, 5});
  CHECK((orphans[0].rank == Rank{1} && orphans[0].process_id == "first"));
  CHECK(unraised.take_orphans(of_first).empty());
  CHECK(steps_of(unraised.take_orphans(everybody)) == Steps{5});
}

TEST_CASE("an alert that the rank has reported is not taken") {
  UnraisedAlerts unraised;
  unraised.tell(Rank{1}, "first", report_of({4, 5}));
  CHECK(steps_of(unraised.raised(Rank{1}, "first", report_of({4, 7}))) == Steps{4, 7});
  CHECK(steps_of(unraised.take_orphans(everybody)) == Steps{5});
}

TEST_CASE("an alert of another process, rank, row or statistic is another alert") {
  UnraisedAlerts unraised;
  unraised.tell(Rank{1}, "first", report_of({4}));
  AlertReport other = report_of({4, 4, 4});
  other.alerts[0].tag_name = "0:fc2.weight/rank1/post_grad";
  other.alerts[1].op = "mean";
  other.alerts[2].rule = "AnomalyNan";
  unraised.raised(Rank{1}, "first", other);
  unraised.raised(Rank{1}, "second", report_of({4}));
  unraised.raised(Rank{2}, "first", report_of({4}));
  CHECK(steps_of(unraised.take_orphans(everybody)) == Steps{4});
}

TEST_CASE("a rank that reports an alert after it was taken does not raise it a second time") {
  UnraisedAlerts unraised;
  unraised.tell(Rank{1}, "first", report_of({4}));
  CHECK(unraised.take_orphans(everybody).size() == 1);
  AlertReport late = report_of({4, 6});
  late.left_out = 3;
  const AlertReport rest = unraised.raised(Rank{1}, "first", late);
  CHECK(steps_of(rest) == Steps{6});
  CHECK(rest.left_out == 3);
  // The process that runs now counts its own steps, from a checkpoint for example.
  CHECK(steps_of(unraised.raised(Rank{1}, "second", report_of({4}))) == Steps{4});
}

TEST_CASE("a report with long texts is known again as the rank sends it") {
  UnraisedAlerts unraised;
  AlertReport large = report_of({4});
  large.alerts[0].tag_name = std::string(1'000, 't');
  unraised.tell(Rank{1}, "first", large);
  unraised.raised(Rank{1}, "first", bounded(large));
  CHECK(unraised.take_orphans(everybody).empty());
}

TEST_CASE("no more than 256 alerts are kept, the newest") {
  UnraisedAlerts unraised;
  for (std::int64_t step = 0; step < 1'000; ++step) unraised.tell(Rank{1}, "first", report_of({step}));
  const auto kept = steps_of(unraised.take_orphans(everybody));
  CHECK(kept.size() == UnraisedAlerts::kMostKept);
  CHECK((kept.front() == 744 && kept.back() == 999));
}

TEST_CASE("a report is cut to sixteen alerts and the others are counted") {
  AlertReport report = report_of_step(0, 20);
  for (std::size_t i = 0; i < 20; ++i) report.alerts[i].step = static_cast<std::int64_t>(i);
  report.left_out = 3;
  report.alerts[0].message = "Rule AnomalyNan";
  const AlertReport cut = bounded(report);
  REQUIRE(cut.alerts.size() == 16);
  CHECK(cut.alerts.back().step == 15);
  CHECK(cut.alerts.front().message == report.alerts[0].message);
  CHECK(cut.left_out == 7);
}

TEST_CASE("long texts of an alert are cut between characters") {
  Alert alert;
  alert.rule = std::string(100, 'r');
  alert.op = std::string(100, 'o');
  alert.tag_name = std::string(511, 't') + "\xC3\xA4";  // the second byte of the character is byte 513
  alert.message = std::string(5'000, 'm');
  const AlertReport cut = bounded({{alert}, 0});
  CHECK(cut.alerts[0].rule.size() == 64);
  CHECK(cut.alerts[0].op.size() == 64);
  CHECK(cut.alerts[0].tag_name == std::string(511, 't'));
  CHECK(cut.alerts[0].message.size() == 1'000);
}

}  // namespace
}  // namespace gradmon
