// SPDX-License-Identifier: Apache-2.0
// Commands that change nothing in the job, or that are refused.

#include "tests/control/hub/served_job.h"

namespace gradmon {
namespace {

TEST_CASE("a set that cannot write the config file fails and says why, and changes nothing") {
  const bool on = GENERATE(false, true);
  ServedJob job(on ? kOn : kOff);
  REQUIRE((on ? job.until_state("on") : job.until([&] { return job.status().reason == "never turned on"; })));
  const auto revision = job.status().revision;
  REQUIRE(::chmod(job.path.c_str(), 0444) == 0);
  const CommandReply reply = job.ask(ServedJob::set("set", {{"collect_times", "5"}}));
  CHECK(reply.outcome == CommandOutcome::failed);
  CHECK(reply.message == "the config file was not changed: it is read-only");
  CHECK(read_text(job.path) == (on ? kOn : kOff));
  CHECK(job.status().revision == revision);
  CHECK(job.ask(CommandVerb::config).config_text == (on ? kOn : kOff));
}

TEST_CASE("a set of a key or op that does not exist is refused unless it is forced") {
  const std::string text =
      R"({"dynamic_on": false, "wg_distributio": true, "alert": {"rules": [{"rule_name": "AnomalyNan"}]}})";
  ServedJob job(text);
  REQUIRE(job.until([&] { return job.status().reason == "never turned on"; }));
  const auto asked = [&](CommandVerb verb, const std::string& key, const std::string& value) {
    static int number = 0;
    return ServedJob::set("set" + std::to_string(++number), {{key, value}}, verb);
  };
  const std::vector<std::tuple<std::string, std::string, std::string>> typos{
      {"op", R"(["norm"])", "unknown key \"op\" (did you mean \"ops\"?)"},
      {"ops", R"(["std"])", "unknown op \"std\", expected min, max, mean, norm, nans, zeros, absmax"},
      {"ops", R"(["norm", "nan"])", "unknown op \"nan\" (did you mean \"nans\"?)"},
      {"/alert/rules/0/argz", "{}", "unknown key \"argz\" (did you mean \"args\"?)"}};
  for (const auto& [key, value, why] : typos) {
    CAPTURE(key, value);
    for (const CommandVerb verb : {CommandVerb::set, CommandVerb::dry_run}) {
      const CommandReply refused = job.ask(asked(verb, key, value));
      CHECK(refused.outcome == CommandOutcome::invalid_config);
      CHECK(refused.message == "refused: " + why + "; --force sets it all the same");
    }
  }
  CHECK(read_text(job.path) == text);
  CHECK(job.ask(asked(CommandVerb::set, "eps", "1e-6")).outcome ==
        CommandOutcome::done);  // an older typo stays
  Command forced = asked(CommandVerb::set, "op", "1");
  forced.force = true;
  CHECK(job.ask(forced).outcome == CommandOutcome::done);
  CHECK(read_text(job.path).find("\"op\": 1") != std::string::npos);
}

TEST_CASE("on without any kind of row says that nothing will be collected, and the status that nothing was") {
  ServedJob job(R"({"collect_times": 2})");
  REQUIRE(job.until([&] { return job.status().reason == "never turned on"; }));
  const CommandReply reply = job.ask(CommandVerb::on, "on");
  CHECK(reply.outcome == CommandOutcome::done);
  CHECK(reply.collects_nothing);
  CHECK(reply.message.find("nothing will be collected: the config enables no kind of row (set wg_dist") == 0);
  CHECK(job.until([&] {
    return job.status().reason.find("finished: nothing was collected: the config enables no kind of row") ==
           0;
  }));
  const CommandReply with_rows =
      job.ask(ServedJob::set("set", {{"wg_distribution", "true"}, {"dynamic_on", "true"}}));
  CHECK_FALSE(with_rows.collects_nothing);
  CHECK(with_rows.message.empty());
}

TEST_CASE(
    "while a job without any kind of row is on, its status says that nothing is collected and names the "
    "keys") {
  ServedJob job(R"({"dynamic_on": true, "collect_times": 1000000})");
  REQUIRE(job.until_state("on"));
  const std::string says = "nothing is collected: the config enables no kind of row (set wg_distribution, ";
  CHECK(job.until([&] { return job.status().reason.find(says) != std::string::npos; }));
  Command set = ServedJob::command(CommandVerb::set, "set");
  set.edits = {{"wg_distribution", "true"}};
  REQUIRE(job.ask(set).outcome == CommandOutcome::done);
  CHECK(job.until([&] { return job.status().state == "on" && job.status().reason.empty(); }));
  set = ServedJob::command(CommandVerb::set, "scalars");
  set.edits = {{"wg_distribution", "false"}, {"scalars", R"({"loss": "log"})"}};
  REQUIRE(job.ask(set).outcome == CommandOutcome::done);
  CHECK(job.until([&] {
    return job.status().reason.find(
               "nothing but training scalars is collected: the config enables no kind") == 0;
  }));
}

TEST_CASE("the history says what a refused command asked for") {
  ServedJob job(kOff);
  const auto reason_of = [&](Command command) {
    const std::string why = job.ask(command).message;
    const HistoryEntry entry = job.history().back();
    CHECK(entry.verdict == "refused");
    CHECK_FALSE(entry.on);
    REQUIRE(entry.reason.size() > why.size());
    CHECK(entry.reason.substr(entry.reason.size() - why.size()) == why);
    return entry.reason.substr(0, entry.reason.size() - why.size());
  };
  Command set = ServedJob::command(CommandVerb::set, "set");
  set.edits = {{"ops", R"(["std"])"}, {"/step_interval", "2"}};
  CHECK(reason_of(set) == "set ops=[\"std\"] /step_interval=2: ");
  CHECK(reason_of(ServedJob::command(CommandVerb::evict, "evict")) == "evict: ");
  set = ServedJob::command(CommandVerb::set, "long");
  set.edits = {{"ops", '"' + std::string(1'000, 'x') + '"'}};
  CHECK(reason_of(set) == "set ops=\"" + std::string(191, 'x') + " ...: ");
}

TEST_CASE("off is written into a file that asks for on, even where nothing is on") {
  ServedJob job(kOff, 2, 1);  // of two ranks one is there, so that no change is decided
  CHECK(job.ask(CommandVerb::on, "on").outcome == CommandOutcome::done);
  CHECK(read_text(job.path) == kOn);
  CHECK(job.ask(CommandVerb::cancel, "cancel").message == "the pending change is withdrawn");
  CHECK(job.ask(CommandVerb::off, "off").message == "saved; collecting stays off");
  CHECK(read_text(job.path) == kOff);
  CHECK(job.ask(CommandVerb::off, "again").message == "already off");
}

TEST_CASE("a command of a later release is refused in a sentence with both releases") {
  ServedJob job(kOff, 1, 1);
  Command later = ServedJob::command(CommandVerb::unknown, "later");
  later.release = "9.9.9";
  const CommandReply reply = job.ask(later);
  CHECK(reply.outcome == CommandOutcome::failed);
  CHECK(reply.message ==
        "the job runs gradmon " + own_release() + ", which does not know this command of gradmon 9.9.9");
}

TEST_CASE("refused commands of many senders push no change out of the history") {
  ServedJob job(kOff, 1, 1);
  REQUIRE(job.until([&] { return job.status().reason == "never turned on"; }));
  job.ask(CommandVerb::on, "on");
  CHECK(job.settled("on").outcome == CommandOutcome::done);
  const auto refused = [&](const std::string& id, const std::string& by) {
    Command set = ServedJob::set(id, {{"on_alert", R"({"exec": ["true"]})"}});
    set.by = by;
    job.send_command(set);
  };
  for (int i = 0; i < 3'000; ++i)
    refused("set" + std::to_string(i), "user" + std::to_string(i) + std::string(1'000, 'x'));
  const auto history = job.history();
  REQUIRE(history.size() > 1);
  CHECK(history.front().verdict == "commit");
  CHECK(history.size() <= 102);
  CHECK(history.back().by.size() == 256);
  job.answers.clear();
  for (int pid = 0; pid < 3; ++pid)
    refused("pid" + std::to_string(pid), "user@host pid " + std::to_string(pid));
  const auto repeated = job.history();
  CHECK(std::count_if(repeated.begin(), repeated.end(),
                      [](const HistoryEntry& entry) { return entry.by.find("user@host") == 0; }) == 1);
}

}  // namespace
}  // namespace gradmon
