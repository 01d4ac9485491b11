// SPDX-License-Identifier: Apache-2.0
// What the lead hub does with the alerts of the ranks.
#include <filesystem>
#include <map>
#include <utility>

#include "control/alerts/replica_rows.h"
#include "control/host/alert_file.h"
#include "tests/control/hub/service/served_job.h"

namespace gradmon {
namespace {

AlertReport report_of(std::int64_t step, std::size_t alerts = 1, std::uint64_t left_out = 0) {
  AlertReport report;
  report.alerts.resize(alerts);
  for (RankAlert& alert : report.alerts) {
    alert.step = step;
    alert.rule = "AnomalyNan";
  }
  report.left_out = left_out;
  return report;
}

// Whether all ranks are members, and have heard so.
bool knows_ranks(ServedJob& job) {
  return job.until([&] {
    for (const RankStatus& rank : job.status().ranks) {
      if (rank.step < 5) return false;
    }
    return true;
  });
}

TEST_CASE("the job lists the alerts of all ranks and counts those that are not listed") {
  ServedJob job(kOff, 2, 2);
  REQUIRE(knows_ranks(job));
  job.ranks[0]->raise(report_of(5, 2, 40));
  job.ranks[1]->raise(report_of(6));
  REQUIRE(job.until([&] { return job.status().ranks[0].alerts == 42; }));
  const CommandReply all = job.ask(CommandVerb::alerts);
  REQUIRE(all.alerts.size() == 3);
  CHECK(all.alerts[0].rank == Rank{0});
  CHECK(all.alerts[2].rank == Rank{1});
  CHECK(all.alerts[0].number > 1'600'000'000'000);  // above the numbers of an earlier hub
  CHECK(all.raised_alerts == 43);
  REQUIRE(job.published.size() == 3);
  CHECK(job.published[2].number == all.alerts[2].number);
  CHECK(job.status().ranks[0].listed_alerts == 2);
  Command of_one = ServedJob::command(CommandVerb::alerts, "one");
  of_one.rank = 1;
  CHECK(job.ask(of_one).alerts.size() == 1);
  CHECK(job.ask(of_one).raised_alerts == 1);
  Command later = ServedJob::command(CommandVerb::alerts, "later");
  later.after = all.alerts[1].number;
  CHECK(job.ask(later).alerts.size() == 1);
  CHECK(job.history().empty());
}

TEST_CASE("alerts of another epoch, of no member and of no rank are dropped") {
  ServedJob job(kOff);
  REQUIRE(knows_ranks(job));
  const AlertReport report = report_of(1);
  job.service->on_message({"another", Rank{0}, 1, report});
  job.service->on_message({"epoch", Rank{0}, 0, report});
  job.service->on_message({"epoch", Rank{0}, 1'000, report});
  job.service->on_message({"epoch", Rank{1}, 1, report});
  job.service->on_message({"epoch", Rank{-1}, 1, report});
  CHECK(job.ask(CommandVerb::alerts).alerts.empty());
}

TEST_CASE("alerts of a job in static mode are listed") {
  ServedJob job(kOff, 1, 1, false);
  REQUIRE(knows_ranks(job));
  job.ranks[0]->raise(report_of(3));
  CHECK(job.ask(CommandVerb::alerts).alerts.size() == 1);
}

TEST_CASE("a flood of alerts leaves an answer that fits into one message") {
  ServedJob job(kOff);
  REQUIRE(knows_ranks(job));
  AlertReport large = report_of(1, 16);
  for (RankAlert& alert : large.alerts) {
    alert.message = std::string(100'000, 'm');
    alert.tag_name = std::string(100'000, 't');
  }
  for (int i = 0; i < 1'000; ++i) job.ranks[0]->raise(large);
  const CommandReply reply = job.ask(CommandVerb::alerts);
  CHECK(reply.alerts.size() == 1 + AlertHistory::kMostKeptOfARank);
  CHECK(encode(Frame(AddressedReply{"id", reply})).size() < kMaxFrameBytes);
}

// --- AnomalyRankDivergence: the alert of a rank that has ended ---

ReplicaRows norm_of_weight(double norm) {
  auto targets = std::make_shared<ReplicaTargets>();
  targets->emplace_back(0, "fc1.weight");
  return {Revision{1}, 4, Kind::param_updated, bit_of(Op::norm), std::move(targets), {norm}};
}

// Two ranks that hold different values and were asked for them.
struct Diverging {
  ServedJob job{kOff, 2, 2};
  std::map<int, ReplicaRequest> requests;

  Diverging() {
    REQUIRE(knows_ranks(job));
    for (int rank = 0; rank < 2; ++rank)
      job.ranks[static_cast<std::size_t>(rank)]->say(
          ReplicaDigests{9, 2, {digest_of(norm_of_weight(1.5 + rank))}});
    for (const Envelope& envelope : std::exchange(job.to_ranks, {})) {
      if (const auto* request = std::get_if<ReplicaRequest>(&envelope.message))
        requests[envelope.rank.value] = *request;
    }
    REQUIRE(requests.size() == 2);
  }
  void answer(int rank) {
    const ReplicaRequest& request = requests.at(rank);
    job.ranks[static_cast<std::size_t>(rank)]->say(
        ReplicaValues{request, 9, 1e-6,
                      rows_in_bucket(norm_of_weight(1.5 + rank), static_cast<std::size_t>(request.bucket))});
  }
  void end(int rank, Message by) {
    job.ranks[static_cast<std::size_t>(rank)]->say(std::move(by));
    job.ranks[static_cast<std::size_t>(rank)]->ended = true;
  }
  // What rank 1 was told to raise.
  AlertReport told() {
    for (const Envelope& envelope : std::exchange(job.to_ranks, {})) {
      if (const auto* report = std::get_if<AlertReport>(&envelope.message)) return *report;
    }
    return {};
  }
  std::vector<RankAlert> listed() { return job.ask(CommandVerb::alerts).alerts; }
};

TEST_CASE("the alert of a rank that has left before it was told is raised by the hub") {
  Diverging diverging;
  diverging.answer(1);
  diverging.end(1, Left{Step{8}});
  diverging.answer(0);
  REQUIRE(diverging.listed().size() == 1);
  const RankAlert alert = diverging.listed().front();
  CHECK(alert.rank == Rank{1});
  CHECK(alert.rule == "AnomalyRankDivergence");
  CHECK(alert.tag_name == "0:fc1.weight/rank1/param_updated");
  CHECK(diverging.job.published.size() == 1);
  CHECK(diverging.job.status().ranks[1].listed_alerts == 1);
  const auto saved = diverging.job.output / ".gradmon" / "epoch" / "alerts.jsonl";
  REQUIRE(diverging.job.until([&] { return std::filesystem::exists(saved); }));
  REQUIRE(diverging.job.until([&] { return !read_alerts(saved).empty(); }));
  CHECK(read_alerts(saved).front().process_id == "process 1");
}

TEST_CASE("the alert of a rank whose process ends before it has reported it is raised by the hub, once") {
  Diverging diverging;
  diverging.answer(1);
  diverging.answer(0);
  CHECK(diverging.told().alerts.size() == 1);
  diverging.job.turns(Ticks{2'000});
  CHECK(diverging.listed().empty());
  diverging.end(1, Disconnected{});
  REQUIRE(diverging.job.until([&] { return diverging.job.published.size() == 1; }));
  diverging.job.turns(Ticks{2'000});
  CHECK(diverging.listed().size() == 1);
}

TEST_CASE("an alert that the rank has reported itself is listed once when the rank ends") {
  Diverging diverging;
  diverging.answer(1);
  diverging.answer(0);
  const AlertReport told = diverging.told();
  REQUIRE(told.alerts.size() == 1);
  diverging.job.ranks[1]->raise(told);
  CHECK(diverging.listed().size() == 1);
  diverging.end(1, Disconnected{});
  diverging.job.turns(Ticks{2'000});
  CHECK(diverging.listed().size() == 1);
}

TEST_CASE("the status says what was compared, and that nothing was where the rule is on") {
  ServedJob without(kOn, 2, 2);
  REQUIRE(without.until_state("on"));
  CHECK_FALSE(without.status().replicas_compared);
  ServedJob job(R"({"dynamic_on": true, "alert": {"rules": [{"rule_name": "AnomalyRankDivergence"}]}})", 2,
                2);
  REQUIRE(job.until_state("on"));
  job.turns(Ticks{100});
  REQUIRE(job.status().replicas_compared);
  CHECK(job.status().replicas_compared->comparisons == 0);
  CHECK(job.status().replicas_compared->not_compared ==
        std::vector<std::string>{"ranks 0, 1: no values of replicas so far"});
  for (const auto& rank : job.ranks) rank->say(ReplicaDigests{9, 2, {digest_of(norm_of_weight(1.5))}});
  CHECK(job.status().replicas_compared->comparisons == 1);
  CHECK(job.status().replicas_compared->ranks == 2);
  CHECK(job.status().replicas_compared->last_step == 4);
  CHECK(job.status().replicas_compared->not_compared.empty());
}

}  // namespace
}  // namespace gradmon
