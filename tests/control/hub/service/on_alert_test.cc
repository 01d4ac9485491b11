// SPDX-License-Identifier: Apache-2.0
// The actions of `on_alert`: a program, and a capture.
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/control/hub/service/served_job.h"

namespace gradmon {
namespace {

using Json = nlohmann::json;

AlertReport report_of(std::int64_t step, std::size_t alerts = 1, std::uint64_t left_out = 0) {
  AlertReport report;
  report.alerts.resize(alerts);
  for (RankAlert& alert : report.alerts) {
    alert.step = step;
    alert.rule = "AnomalyNan";
    alert.tag_name = "0:fc1.weight/rank0/post_grad";
    alert.message = "$(touch evil); `touch evil`";
  }
  report.left_out = left_out;
  return report;
}

bool warns(const ServedJob& job, const std::string& text) {
  const Status status = job.status();
  return std::any_of(status.warnings.begin(), status.warnings.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

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
  REQUIRE(job.until([&] { return warns(job, line); }));
  CHECK(std::count(job.log_lines.begin(), job.log_lines.end(), line) == 1);
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
      Command command = ServedJob::command(verb, "try " + std::to_string(++number));
      command.edits = {{"eps", "1e-3"}, edit};
      const CommandReply reply = job.ask(command);
      CHECK(reply.outcome == CommandOutcome::not_allowed);
    }
  }
  CHECK(read_text(job.path) == before);
  Command allowed = ServedJob::command(CommandVerb::set, "allowed");
  allowed.edits = {{"/on_alert/times", "5"}};
  CHECK(job.ask(allowed).outcome == CommandOutcome::done);
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
  CHECK(warns(job, line));
  CHECK(std::count(job.log_lines.begin(), job.log_lines.end(), line) == 1);
  job.turns(Ticks{500});
  job.ranks[0]->raise(report_of(3));
  job.turns(Ticks{500});
  CHECK(job.history().empty());
}

}  // namespace
}  // namespace gradmon
