// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/run_notes.h"

#include <gradmon/monitor.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/support/commits.h"
#include "tests/support/outcome.h"
#include "tests/support/real_job.h"
#include "tests/support/scoped_variable.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

RunFile sample() {
  RunFile file;
  file.run_id = "0badcafe";
  file.started = 1'790'000'123'045;
  file.world_size = 3;
  file.versions = {{"gradmon", "0.1.0"}, {"torch", "2.6.0"}};
  file.ranks = {{Rank{0}, "node-a", 4242}, {Rank{2}, "node\"b", 7}};
  add_revision(file, {Revision{1}, Step{5}, true, "file", "/home/me/m.json",
                      "{\n \"dynamic_on\": true, \"b\": [1], \"a\": 2}\n"});
  add_revision(file, {Revision{4}, Step{90}, false, "ctl", "me@node-a pid 9", "not JSON"});
  file.scopes = std::make_shared<const RunFile::Scopes>(
      RunFile::Scopes{{"0:fc1.weight", ParameterPlacement{ParameterPlacement::Part::shard, 1, 4}},
                      {"0:fc2.bias", ParameterPlacement{ParameterPlacement::Part::replica, 0, 1}},
                      {"1:norm", ParameterPlacement{}}});
  return file;
}

nlohmann::json run_file_in(const std::filesystem::path& output_dir) {
  nlohmann::json found;
  for (const auto& entry : std::filesystem::directory_iterator(output_dir)) {
    const std::string name = entry.path().filename().string();
    if (name.find("run-") != 0 || entry.path().extension() != ".json") continue;  // .new: being written
    INFO(name);
    REQUIRE(found.is_null());
    found = nlohmann::json::parse(read_text(entry.path()));
    CHECK(name == "run-" + found.at("run_id").get<std::string>() + ".json");
  }
  return found;
}

TEST_CASE("the text of a sample run file is exact") {
  const ScopedVariable zone("TZ", "XYZ-5:30");
  CHECK(to_json(sample()) == R"({
  "format": 1,
  "run_id": "0badcafe",
  "started": "2026-09-21T19:45:23.045+05:30",
  "world_size": 3,
  "versions": {"gradmon":"0.1.0","torch":"2.6.0"},
  "ranks": [
    {"rank":0,"host":"node-a","pid":4242},
    {"rank":2,"host":"node\"b","pid":7}
  ],
  "revisions": [
    {"revision":1,"effective_step":5,"on":true,"cause":"file","by":"/home/me/m.json","config":{
 "dynamic_on": true, "b": [1], "a": 2}
},
    {"revision":4,"effective_step":90,"on":false,"cause":"ctl","by":"me@node-a pid 9","config":"not JSON"}
  ],
  "scopes": {
    "0:fc1.weight": {"scope":"shard","index":1,"count":4},
    "0:fc2.bias": {"scope":"replica"},
    "1:norm": {"scope":"whole"}
  }
}
)");
  CHECK(nlohmann::json::parse(to_json(sample())).at("revisions").at(0).at("config").at("a") == 2);
}

TEST_CASE("of many revisions the first and the newest are kept and the others are counted") {
  RunFile file;
  for (std::uint64_t i = 1; i <= 1203; ++i) add_revision(file, {Revision{i}, Step{}, true, "file", "", "{}"});
  CHECK(file.revisions.size() == 1000);
  CHECK(file.revisions_left_out == 203);
  CHECK(file.revisions[0]->revision == Revision{1});
  CHECK(file.revisions[1]->revision == Revision{205});
  CHECK(nlohmann::json::parse(to_json(file)).at("revisions_left_out") == 203);
  const std::string large(std::size_t{5} << 20, ' ');
  for (std::uint64_t i = 1204; i <= 1209; ++i)
    add_revision(file, {Revision{i}, Step{}, true, "file", "", "{" + large + "}"});
  CHECK(file.revisions.size() == 4);
  CHECK(file.revisions_left_out == 1205);
}

TEST_CASE("a time zone west of Greenwich has a minus sign") {
  const ScopedVariable zone("TZ", "XYZ8");
  CHECK(to_json(sample()).find("T06:15:23.045-08:00\"") != std::string::npos);
}

TEST_CASE("a run file is named after its run and replaces an earlier one") {
  const TemporaryDirectory scratch;
  RunDirectory directory(scratch.path(), Rank{0}, "launch", [] {
    return JobIdentity{"epoch", "12345678", 1'790'000'123'045};
  });
  RunFile file = sample();
  REQUIRE(write_run_file(directory, file));
  file.world_size = 77;
  REQUIRE(write_run_file(directory, file));
  const std::string text = read_text(scratch.path() / "run-12345678.json");
  CHECK(text.find("\"run_id\": \"12345678\"") != std::string::npos);
  CHECK(text.find("\"world_size\": 77") != std::string::npos);
  CHECK(std::distance(std::filesystem::directory_iterator(scratch.path()), {}) == 1);
}

TEST_CASE("the run file has the job's revisions and ranks and the scopes of rank 0's parameters") {
  RealJob::Options options;
  options.config = R"({"dynamic_on": false, "wg_distribution": true})";
  options.train = {"--steps", "100000000", "--step-ms", "2"};
  RealJob job(options);
  REQUIRE(eventually([&] { return job.status().ranks.size() == 2 && job.status().ranks[1].step > 2; }));
  CHECK(run_file_in(job.output_dir).is_null());
  const std::string on = R"({"dynamic_on": true, "wg_distribution": true, "collect_times": 1000000})";
  write_text(job.config_path, on);
  REQUIRE(job.wait_for_changes(1));
  const std::string off = R"({"dynamic_on": false})";
  write_text(job.config_path, off);
  REQUIRE(job.wait_for_changes(2));
  const auto history = commits_of(job.history());
  REQUIRE(history.size() == 2);
  nlohmann::json run;
  REQUIRE(eventually([&] {
    run = run_file_in(job.output_dir);
    return run.is_object() && run.at("revisions").size() == 2 && run.at("ranks").size() == 2;
  }));
  job.end();

  CHECK(run.at("format") == 1);
  CHECK(run.at("world_size") == 2);
  CHECK(run.at("versions").contains("torch"));
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& revision = run.at("revisions").at(i);
    CHECK(revision.at("revision") == history[i].revision.value);
    CHECK(revision.at("effective_step") == history[i].effective_step);
    CHECK(revision.at("on") == (i == 0));
    CHECK(revision.at("cause") == "file");
    CHECK(revision.at("config") == nlohmann::json::parse(i == 0 ? on : off));
  }
  REQUIRE_FALSE(run.at("scopes").empty());
  for (const auto& scope : run.at("scopes")) CHECK(scope.at("scope") == "whole");
}

// Runs one step of one rank, in a job of two ranks in static mode.
void run_one_step(MonitorOptions options, const TemporaryDirectory& scratch) {
  const ScopedVariable launch("GRADMON_RUN_ID", "run_file_test");
  write_text(scratch / "config.json", R"({"wg_distribution": true})");
  options.world_size = 2;
  options.dynamic = false;
  options.output_dir = scratch / "out";
  torch::nn::Linear model(3, 2);
  torch::nn::Linear second(1, 1);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  Monitor monitor(scratch / "config.json", options);
  monitor.watch(*model, optimizer);
  monitor.watch(*second, optimizer);
  model->forward(torch::ones({4, 3})).sum().backward();
  monitor.step(optimizer);
}

TEST_CASE("the groups decide a parameter's scope in the run file") {
  const TemporaryDirectory scratch;
  MonitorOptions options;
  options.rank = 0;
  options.groups.tensor = {0, 1};
  options.groups.split = [](const std::string& parameter) { return parameter == "weight"; };
  run_one_step(options, scratch);
  const auto run = run_file_in(scratch / "out");
  REQUIRE(run.is_object());
  CHECK(run.at("scopes").at("0:weight") == nlohmann::json{{"scope", "shard"}, {"index", 0}, {"count", 2}});
  CHECK(run.at("scopes").at("0:bias") == nlohmann::json{{"scope", "replica"}});
  CHECK(run.at("scopes").contains("1:weight"));
  REQUIRE(run.at("revisions").size() == 1);
  CHECK(run.at("revisions").at(0).at("revision") == 0);
}

TEST_CASE("a rank other than 0 writes no run file") {
  const TemporaryDirectory scratch;
  MonitorOptions options;
  options.rank = 1;
  run_one_step(options, scratch);
  CHECK(run_file_in(scratch / "out").is_null());
  CHECK_FALSE(rows_in_files(scratch / "out", "grad_reduced").empty());
}

nlohmann::json targets_in(ScopeNotes& notes) {
  const auto text = notes.take_changed();
  REQUIRE(text);
  const auto json = nlohmann::json::parse(*text);
  REQUIRE(json["format"] == 1);
  return json["targets"];
}

WatchedParameter parameter(ParameterPlacement placement = {}) {
  WatchedParameter one;
  one.placement = placement;
  return one;
}

TEST_CASE("a row has the scope of its tensor, else that of its parameter") {
  NameTable names;
  ScopeNotes notes(names, 2);
  const std::uint32_t weight = names.intern("fc.\"weight\"", 1);
  const std::uint32_t split = names.intern("split", 0);
  notes.expect(weight, parameter());
  notes.expect(split, parameter({ParameterPlacement::Part::shard, 1, 4}));
  notes.note(Kind::grad_reduced, weight, make_scope(R"({"scope": "partial"})"));
  notes.count_row(Kind::grad_reduced, weight);
  notes.count_row(Kind::grad_unreduced, weight);
  notes.count_row(Kind::param_origin, weight);
  notes.count_row(Kind::exp_avg, split);
  notes.count_row(Kind::scalar, names.intern("loss", 0));
  notes.count_row(Kind::actv, names.intern("fc.output", 0));
  const auto found = targets_in(notes);
  CHECK(found["1:fc.\"weight\""]["grad_reduced"]["scope"] == "partial");
  CHECK(found["1:fc.\"weight\""]["grad_unreduced"]["scope"] == "whole");
  CHECK(found["1:fc.\"weight\""]["param_origin"]["scope"] == "replica");
  CHECK(found["0:split"]["exp_avg"] == nlohmann::json{{"scope", "shard"}, {"index", 1}, {"count", 4}});
  CHECK(found["0:fc.output"]["actv"]["scope"] == "whole");
  CHECK(found.size() == 3);  // a scalar is of no tensor
}

TEST_CASE("a parameter that differs between the ranks is no replica") {
  NameTable names;
  ScopeNotes notes(names, 2);
  WatchedParameter expert = parameter();
  expert.replicated = false;
  const std::uint32_t target = names.intern("expert", 0);
  notes.expect(target, expert);
  notes.count_row(Kind::grad_reduced, target);
  CHECK(targets_in(notes)["0:expert"]["grad_reduced"]["scope"] == "whole");
}

TEST_CASE("a sharded parameter tells of rows whose tensors do not") {
  NameTable names;
  ScopeNotes notes(names, 0);
  ParameterSharding sharding;
  sharding.unreduced_scope = make_scope(R"({"scope": "whole"})");
  sharding.scope = make_scope(R"({"scope": "piece"})");
  WatchedParameter one = parameter();
  one.sharding = std::make_shared<const ParameterSharding>(sharding);
  const std::uint32_t target = names.intern("w", 0);
  notes.expect(target, one);
  notes.count_row(Kind::other, target);
  notes.count_row(Kind::grad_unreduced, target);
  const auto found = targets_in(notes);
  CHECK(found["0:w"]["other"]["scope"] == "piece");
  CHECK(found["0:w"]["grad_unreduced"]["scope"] == "whole");
}

TEST_CASE("the file is written again only when something is new") {
  NameTable names;
  ScopeNotes notes(names, 0);
  CHECK_FALSE(notes.take_changed());
  const std::uint32_t target = names.intern("w", 0);
  for (int step = 0; step < 2; ++step) {
    notes.note(Kind::grad_reduced, target, make_scope(R"({"scope": "shard"})"));  // equal, another object
    CHECK(notes.take_changed().has_value() == (step == 0));
  }
  notes.note(Kind::grad_reduced, target, make_scope(R"({"scope": "partial"})"));
  CHECK(targets_in(notes)["0:w"]["grad_reduced"]["scope"] == "partial");
}

TEST_CASE("the sinks know the scope of a row before the row is written") {
  NameTable names;
  ScopeNotes notes(names, 2);
  const std::uint32_t target = names.intern("w", 0);
  notes.expect(target, parameter());
  notes.count_row(Kind::grad_reduced, target);
  CHECK(names.name(notes.table()->of(Kind::grad_reduced, target)) == R"({"scope": "replica"})");
  const std::uint32_t version = notes.table()->version();
  notes.count_row(Kind::grad_reduced, target);
  CHECK(notes.table()->version() == version);
  notes.note(Kind::grad_reduced, target, make_scope(R"({"scope": "partial"})"));
  CHECK(notes.table()->version() > version);
  CHECK(names.name(notes.table()->of(Kind::grad_reduced, target)) == R"({"scope": "partial"})");
  CHECK(notes.table()->of(Kind::scalar, target) == 0);
}

}  // namespace
}  // namespace gradmon
