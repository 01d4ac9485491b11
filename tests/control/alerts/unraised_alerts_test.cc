// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/unraised_alerts.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

AlertReport report_of(const std::vector<std::int64_t>& steps) {
  AlertReport report;
  for (const std::int64_t step : steps) {
    RankAlert& alert = report.alerts.emplace_back();
    alert.rule = "AnomalyRankDivergence";
    alert.step = step;
    alert.tag_name = "0:fc1.weight/rank1/post_grad";
    alert.op = "norm";
  }
  return report;
}

std::vector<std::int64_t> steps_of(const AlertReport& report) {
  std::vector<std::int64_t> steps;
  for (const RankAlert& alert : report.alerts) steps.push_back(alert.step);
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

}  // namespace
}  // namespace gradmon
