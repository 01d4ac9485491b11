// SPDX-License-Identifier: Apache-2.0
// The lead hub and the alerts of the ranks.
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "control/alerts/replicas.h"
#include "control/host/history_file.h"
#include "tests/control/hub/served_job.h"

namespace gradmon {
namespace {

AlertReport report_of(std::int64_t step, std::size_t alerts = 1, std::uint64_t left_out = 0) {
  AlertReport report;
  report.alerts.resize(alerts);
  for (Alert& alert : report.alerts) {
    alert.step = step;
    alert.rule = "AnomalyNan";
    alert.tag_name = "0:fc1.weight/rank0/post_grad";
    alert.message = "$(touch evil); `touch evil`";
  }
  report.left_out = left_out;
  return report;
}

// True if all ranks are members, and have heard so.
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

TEST_CASE("a flood of alerts leaves an answer that fits into one message") {
  ServedJob job(kOff);
  REQUIRE(knows_ranks(job));
  AlertReport large = report_of(1, 16);
  for (Alert& alert : large.alerts) {
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
          ReplicaDigests{9, 2, {fold_into_digest(norm_of_weight(1.5 + rank))}});
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
  // The alerts that rank 1 was told to raise.
  AlertReport told() {
    for (const Envelope& envelope : std::exchange(job.to_ranks, {})) {
      if (const auto* report = std::get_if<AlertReport>(&envelope.message)) return *report;
    }
    return {};
  }
  std::vector<Alert> listed() { return job.ask(CommandVerb::alerts).alerts; }
};

TEST_CASE("the alert of a rank that has left before it was told is raised by the hub") {
  Diverging diverging;
  diverging.answer(1);
  diverging.end(1, Left{Step{8}});
  diverging.answer(0);
  REQUIRE(diverging.listed().size() == 1);
  const Alert alert = diverging.listed().front();
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
  for (const auto& rank : job.ranks) rank->say(ReplicaDigests{9, 2, {fold_into_digest(norm_of_weight(1.5))}});
  CHECK(job.status().replicas_compared->comparisons == 1);
  CHECK(job.status().replicas_compared->ranks == 2);
  CHECK(job.status().replicas_compared->last_step == 4);
  CHECK(job.status().replicas_compared->not_compared.empty());
}

using Json = nlohmann::json;

// A program that writes its input, arguments and environment into the directory that is its first argument.
struct Program {
  const TemporaryDirectory scratch;
  const std::filesystem::path path = scratch / "notify";

  Program() {
    write_text(
        path,
        "#!/bin/sh\ncat > \"$1/new\"; env > \"$1/environment\"; printf '%s|' \"$@\" > \"$1/arguments\"\n"
        "mv \"$1/new\" \"$1/input\"\n");
    REQUIRE(::chmod(path.c_str(), 0700) == 0);
  }
  Json exec() const { return {path.string(), scratch.path().string(), "a b"}; }
  // The input of the next run, once there is one.
  Json input(ServedJob& job) const {
    job.turn();
    REQUIRE(eventually([&] { return std::filesystem::exists(scratch / "input"); }));
    const std::string text = read_text(scratch / "input");
    std::filesystem::remove(scratch / "input");
    return Json::parse(text);
  }
};

std::string config_with(const Json& on_alert) {
  return Json{{"dynamic_on", true}, {"step_interval", 4}, {"on_alert", on_alert}}.dump();
}

// --- exec ---

TEST_CASE("an alert runs the program of on_alert, which gets the alerts and what is said about them") {
  const bool dynamic = GENERATE(true, false);
  const Program program;
  ServedJob job(config_with({{"exec", program.exec()}, {"cooldown", 0}}), 1, 1, dynamic);
  if (dynamic) REQUIRE(job.until_state("on"));
  job.turns(Ticks{500});
  job.ranks[0]->raise(report_of(5, 2, 40));
  const Json input = program.input(job);
  CHECK(input["launch_id"] == "launch");
  CHECK(input["output_dir"] == job.output.string());
  REQUIRE(input["alerts"].size() == 2);
  CHECK(input["alerts"][0]["rule"] == "AnomalyNan");
  CHECK(input["alerts"][0]["rank"] == 0);
  CHECK(input["left_out"] == 40);
  CHECK(input["missed"] == 0);
  CHECK(read_text(program.scratch / "arguments") == program.scratch.path().string() + "|a b|");
  const std::string environment = read_text(program.scratch / "environment");
  CHECK(environment.find("GRADMON_ALERT_STEP=5\n") != std::string::npos);
  CHECK(environment.find("GRADMON_ALERT_MESSAGE=$(touch evil); `touch evil`\n") != std::string::npos);
  // More alerts within ten seconds are counted for the next run.
  job.ranks[0]->raise(report_of(6, 3, 1));
  job.turns(Ticks{5'000});
  CHECK_FALSE(std::filesystem::exists(program.scratch / "input"));
  job.turns(Ticks{6'000});
  job.ranks[0]->raise(report_of(7));
  const Json next = program.input(job);
  CHECK(next["missed"] == 4);
  CHECK(next["alerts"][0]["step"] == 7);
}

TEST_CASE("a program that fails is named in the log and in the status") {
  ServedJob job(config_with({{"exec", {"/bin/false"}}}));
  REQUIRE(job.until_state("on"));
  job.ranks[0]->raise(report_of(5));
  const std::string line = "on_alert: /bin/false exited with status 1";
  REQUIRE(job.until([&] { return job.warns(line); }));
  CHECK(job.times_logged(line) == 1);
}

TEST_CASE("without on_alert, and with an alert of none, no program runs") {
  const Program program;
  ServedJob job(config_with({{"exec", program.exec()}}));
  REQUIRE(job.until_state("on"));
  job.ranks[0]->raise(report_of(5, 0, 9));
  write_text(job.path, kOn);
  REQUIRE(job.until([&] { return job.ask(CommandVerb::config).config_text == kOn; }));
  job.ranks[0]->raise(report_of(6));
  job.turns(Ticks{1'000});
  CHECK_FALSE(std::filesystem::exists(program.scratch / "arguments"));
}

TEST_CASE("no command sets the program of on_alert, in whatever way it is written") {
  ServedJob job(R"({"dynamic_on": false, "on_alert": {"exec": ["/bin/true", "x"]}})");
  const std::string before = read_text(job.path);
  const std::vector<std::pair<std::string, std::string>> tries{
      {"on_alert", R"({"exec": ["/bin/sh"]})"},     {"on_alert", R"({"\u0065xec": ["/bin/sh"]})"},
      {"/on_alert", R"({"times": 2, "exec": []})"}, {"/on_alert/exec", R"(["/bin/sh"])"},
      {"/on_alert/exec/0", R"("/bin/sh")"},         {"/on_alert/exec/1", R"("y")"}};
  int number = 0;
  for (const auto& edit : tries) {
    INFO(edit.first << " " << edit.second);
    for (const CommandVerb verb : {CommandVerb::set, CommandVerb::on}) {
      const auto tried = ServedJob::set("try " + std::to_string(++number), {{"eps", "1e-3"}, edit}, verb);
      CHECK(job.ask(tried).outcome == CommandOutcome::not_allowed);
    }
  }
  CHECK(read_text(job.path) == before);
  CHECK(job.ask(ServedJob::set("allowed", {{"/on_alert/times", "5"}})).outcome == CommandOutcome::done);
}

// --- collect ---

std::vector<std::int64_t> steps_with(const SimulatedRank& rank, const std::string& text) {
  std::vector<std::int64_t> steps;
  for (const auto& [step, config] : rank.config_of) {
    if (Json::parse(config).value("xy_distribution", false) == (text == "richer")) steps.push_back(step);
  }
  return steps;
}

TEST_CASE("an alert on one rank switches the richer config on for all ranks, and back") {
  const std::string config =
      config_with({{"collect", {{"xy_distribution", true}}}, {"times", 5}, {"cooldown", 5}});
  ServedJob job(config, 3, 3);
  REQUIRE(job.until_state("on"));
  REQUIRE(job.until([&] { return job.ranks[2]->collected.size() > 3; }));
  job.ranks[1]->raise(report_of(7));
  REQUIRE(job.until([&] { return job.history().size() == 3 && job.history().back().verdict == "commit"; }));
  const auto history = job.history();
  CHECK(history[1].by == "an alert (AnomalyNan on rank 1 at step 7)");
  CHECK((history[1].cause == "alert" && history[2].cause == "alert"));
  REQUIRE(job.until([&] { return job.ranks[0]->collected.back() > history[2].effective_step + 20; }));
  const std::int64_t begin = history[1].effective_step;
  const std::vector<std::int64_t> captured{begin, begin + 1, begin + 2, begin + 3, begin + 4};
  for (const auto& rank : job.ranks) CHECK(steps_with(*rank, "richer") == captured);
  CHECK(read_text(job.path) == config);
  CHECK(job.ask(CommandVerb::config).config_text == config);
  // Within the cooldown nothing more is captured, after it something is.
  job.ranks[2]->raise(report_of(90));
  job.turns(Ticks{200});
  CHECK(job.history().size() == 3);
  job.turns(Ticks{5'000});
  job.ranks[2]->raise(report_of(91));
  CHECK(job.until([&] { return job.history().size() == 5; }));
}

TEST_CASE("an alert that begins during a change starts its capture after the change") {
  const bool wanted = GENERATE(true, false);
  Json config = Json::parse(config_with({{"collect", {{"xy_distribution", true}}}, {"times", 5}}));
  ServedJob job(config.dump(), 2, 2);
  REQUIRE(job.until_state("on"));
  config["step_interval"] = 2;
  if (!wanted) config.erase("on_alert");
  write_text(job.path, config.dump());
  REQUIRE(job.until([&] { return job.status().pending.has_value(); }));
  job.ranks[0]->raise(report_of(3));
  job.ranks[1]->raise(report_of(4));
  REQUIRE(job.until([&] { return job.history().size() == (wanted ? 4U : 2U); }));
  job.turns(Ticks{2'000});
  const auto history = job.history();
  REQUIRE(history.size() == (wanted ? 4U : 2U));
  if (wanted) CHECK(history[2].by == "an alert (AnomalyNan on rank 0 at step 3)");
}

TEST_CASE("the user's plan collects its own number of steps beside the captured ones") {
  Json config = Json::parse(config_with({{"collect", {{"xy_distribution", true}}}, {"times", 5}}));
  config["collect_times"] = 400;
  config["step_interval"] = 1;
  ServedJob job(config.dump(), 2, 2);
  REQUIRE(job.until_state("on"));
  job.ranks[0]->raise(report_of(3));
  REQUIRE(job.until([&] { return Json::parse(read_text(job.path))["dynamic_on"] == false; }));
  for (const auto& rank : job.ranks) {
    CHECK(steps_with(*rank, "richer").size() == 5);
    CHECK(steps_with(*rank, "as before").size() == 400);
  }
  CHECK(job.status().reason.rfind("finished", 0) == 0);
}

TEST_CASE("static mode refuses collect with a plain message") {
  ServedJob job(config_with({{"collect", {{"xy_distribution", true}}}}), 1, 1, false);
  const std::string line =
      "static mode: \"collect\" of \"on_alert\" has no effect; DYNAMIC_MONITOR=True makes it possible";
  CHECK(job.warns(line));
  CHECK(job.times_logged(line) == 1);
  job.turns(Ticks{500});
  job.ranks[0]->raise(report_of(3));
  job.turns(Ticks{500});
  CHECK(job.history().empty());
  CHECK(job.ask(CommandVerb::alerts).alerts.size() == 1);  // It is listed.
}

}  // namespace
}  // namespace gradmon
