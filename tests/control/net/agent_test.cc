// SPDX-License-Identifier: Apache-2.0
// Whole control planes without torch: real agents, sockets, register and config
// file in one process, with trainers that only count.
#include "control/net/agent.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <thread>

#include "control/debian_version.h"
#include "control/net/command_client.h"
#include "control/net/discovery.h"
#include "control/net/process_identity.h"
#include "control/net/state_feed.h"
#include "tests/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr std::chrono::milliseconds kSoon{20'000};

// One target that fires and one that does not, or what a config is about.
TargetList targets_under(const Plan* plan) {
  TargetList list;
  list.counts = {2, 1, 0};
  list.targets = {{"grad_reduced", "fc1", 7, 1000, 0, ""}, {"grad_reduced", "fc2", -1, 0, 3, "frozen"}};
  if (plan == nullptr) return list;
  list.targets.clear();
  list.counts = {plan->collect_times, 0, 1};
  list.unmatched = {{"fc9", {"fc1"}, ""}};
  return list;
}

// One rank whose trainer thread steps every `pause`.
class FakeRank {
 public:
  FakeRank(AgentOptions options, std::chrono::microseconds pause)
      : start_(options.start_iteration), pause_(pause), gate_(start_), agent_(options, gate_, calls()) {
    trainer_ = std::thread([this] { train(); });
  }
  ~FakeRank() { stop(); }
  void stop() {
    stopping_ = true;
    if (trainer_.joinable()) trainer_.join();
  }

  // Read once it has stopped.
  std::map<std::int64_t, std::uint64_t> ran;
  std::vector<std::int64_t> collected;

  Agent& agent() { return agent_; }
  std::atomic<std::int64_t> matches{1};

 private:
  AgentCalls calls() {
    return {[this](const Plan&) -> tl::expected<std::int64_t, std::string> { return matches.load(); },
            [] { return CollectingReport{}; }, [] { return std::filesystem::path{}; },
            [](const Plan* plan) { return targets_under(plan); }};
  }
  void train() {
    Step n = start_;
    Revision revision;
    for (bool first = true; !stopping_; n = n + 1, first = false) {
      if (!gate_.try_begin(n)) {
        const Opening opening = gate_.begin_or_wait(n, [this] { return stopping_.load(); });
        if (stopping_) break;
        if (opening.swap) {
          revision = opening.swap->revision;
          agent_.boundary_passed();
        }
        if (opening.collect) collected.push_back(n.value);
        if (opening.ended) agent_.rows_on_disk(revision);
      }
      ran[n.value] = revision.value;
      if (first) agent_.start();
      std::this_thread::sleep_for(pause_);  // The length of a step, not a wait for anything.
    }
    agent_.stop(Step{n.value - 1});
  }

  const Step start_;
  const std::chrono::microseconds pause_;
  std::atomic<bool> stopping_{false};
  StepGate gate_;
  Agent agent_;
  std::thread trainer_;
};

class FakeJob {
 public:
  explicit FakeJob(int world, const std::string& config, AgentOptions options = {}) : launch_(random_hex(4)) {
    write_text(config_path(), config);
    for (int rank = 0; rank < world; ++rank) {
      options.rank = Rank{rank};
      options.world_size = world;
      options.launcher_id = launch_;
      options.output_dir = directory_.path();
      options.config_path = config_path();
      ranks_.push_back(std::make_unique<FakeRank>(options, std::chrono::microseconds(500 + 700 * rank)));
    }
  }
  std::filesystem::path config_path() const { return directory_ / "monitor_config.json"; }
  const std::filesystem::path& output() const { return directory_.path(); }
  FakeRank& rank(int r) { return *ranks_[static_cast<std::size_t>(r)]; }

  CommandReply ask(CommandVerb verb, std::string request_id = random_hex(8)) {
    Command command;
    command.verb = verb;
    command.request_id = std::move(request_id);
    command.by = "tester";
    return ask(command);
  }
  CommandReply ask(const Command& command) {
    std::vector<JobEntry> jobs;
    REQUIRE(eventually([&] {
      jobs = live_jobs(read_jobs(output()).value_or(std::vector<JobEntry>{}));
      return !jobs.empty();
    }));
    CommandClient client(jobs.front().endpoint);
    auto reply = client.ask(command, kSoon);
    REQUIRE(reply);
    return *reply;
  }
  // Until the change is decided and applied everywhere.
  CommandReply wait_for(const std::string& request_id) {
    CommandReply reply;
    REQUIRE(eventually([&] {
      reply = ask(CommandVerb::verdict, request_id);
      return reply.settled && (reply.applied_by_all || reply.outcome != CommandOutcome::done);
    }));
    return reply;
  }
  std::vector<HistoryEntry> history() { return ask(CommandVerb::history).history; }

  // Stops all ranks; "" where no step was run under two revisions.
  std::string divergence() {
    for (auto& rank : ranks_) rank->stop();
    std::map<std::int64_t, std::uint64_t> agreed;
    for (auto& rank : ranks_) {
      for (const auto& [step, revision] : rank->ran) {
        if (agreed.emplace(step, revision).first->second != revision) return "step " + std::to_string(step);
      }
    }
    return "";
  }

 private:
  const TemporaryDirectory directory_;
  const std::string launch_;
  std::vector<std::unique_ptr<FakeRank>> ranks_;
};

TEST_CASE("a job that starts on begins at the step after the first on all ranks") {
  FakeJob job(3, R"({"dynamic_on": true, "collect_times": 2})");
  REQUIRE(eventually(
      [&] { return read_text(job.config_path()) == R"({"dynamic_on": false, "collect_times": 2})"; }));
  REQUIRE(job.divergence().empty());
  for (int rank = 0; rank < 3; ++rank) REQUIRE(job.rank(rank).collected == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("a saved file switches all ranks at one step and its end is written back") {
  FakeJob job(3, R"({"dynamic_on": false})");
  REQUIRE(eventually([&] { return job.ask(CommandVerb::status).status->reason == "not asked for"; }));
  write_text(job.config_path(), "{\n  \"dynamic_on\": true,\n  \"collect_times\": 3\n}\n");
  REQUIRE(eventually([&] {
    return read_text(job.config_path()) == "{\n  \"dynamic_on\": false,\n  \"collect_times\": 3\n}\n";
  }));
  REQUIRE(eventually([&] { return job.ask(CommandVerb::status).status->reason == "finished"; }));
  const auto history = job.history();
  // On a busy machine a rank may have been in doubt, and the change proposed again.
  REQUIRE(history.front().cause == "file");
  REQUIRE(history.back().verdict == "commit");
  REQUIRE(history.back().applied.size() == 3);
  REQUIRE(job.divergence().empty());
  REQUIRE(job.rank(0).collected.size() == 3);
  REQUIRE(job.rank(1).collected == job.rank(0).collected);
  REQUIRE(job.rank(2).collected == job.rank(0).collected);
}

TEST_CASE("on and off by command go into the file and are sets and not flips") {
  FakeJob job(2, R"({"dynamic_on": false})");
  REQUIRE(job.ask(CommandVerb::on, "one").outcome == CommandOutcome::done);
  REQUIRE(job.wait_for("one").effective_step > 0);
  REQUIRE(read_text(job.config_path()) == R"({"dynamic_on": true})");
  REQUIRE(job.ask(CommandVerb::on, "one").outcome == CommandOutcome::done);
  REQUIRE(job.history().size() == 1);
  job.ask(CommandVerb::off, "two");
  job.wait_for("two");
  REQUIRE(read_text(job.config_path()) == R"({"dynamic_on": false})");
  REQUIRE(job.ask(CommandVerb::off, "three").message == "already off");
  REQUIRE(job.history().size() == 2);
  REQUIRE(job.divergence().empty());
  REQUIRE(job.rank(0).collected == job.rank(1).collected);
}

TEST_CASE("what several ranks' programs ask for in one step is one change on all ranks") {
  FakeJob job(3, R"({"dynamic_on": false})");
  Command on;
  on.verb = CommandVerb::on;
  on.request_id = "step 7 on";
  on.collect_times = 4;
  for (const int rank : {2, 0, 1}) job.rank(rank).agent().ask(on);
  REQUIRE(job.wait_for("step 7 on").effective_step > 0);
  REQUIRE(read_text(job.config_path()).find(R"("collect_times": 4)") != std::string::npos);
  Command off;
  off.verb = CommandVerb::off;
  off.request_id = "step 9 off";
  job.rank(1).agent().ask(off);
  REQUIRE(eventually([&] { return job.ask(CommandVerb::verdict, "step 9 off").settled; }));
  const std::vector<HistoryEntry> history = job.history();
  REQUIRE(std::count_if(history.begin(), history.end(),
                        [](const HistoryEntry& entry) { return entry.request_id == "step 7 on"; }) == 1);
  REQUIRE(history.front().by.find("the program of rank ") == 0);
  REQUIRE(job.divergence().empty());
  REQUIRE(job.rank(0).collected == job.rank(2).collected);
}

TEST_CASE("a config of nearly 1 MiB is agreed on twice in a row") {
  FakeJob job(2, R"({"dynamic_on": false})");
  for (const char* name : {"a", "b"}) {
    const std::size_t before = job.history().size();
    write_text(job.config_path(),
               R"({"dynamic_on": true, "note": ")" + std::string((1U << 20U) - 100, *name) + "\"}");
    REQUIRE(eventually([&] {
      const auto history = job.history();
      return history.size() > before && history.back().verdict == "commit" &&
             history.back().applied.size() == 2;
    }));
  }
  REQUIRE(job.divergence().empty());
}

TEST_CASE("a rank whose endpoint makes no sense trains on") {
  const TemporaryDirectory directory;
  AgentOptions options;
  options.rank = Rank{1};
  options.world_size = 2;
  options.launcher_id = "launch";
  options.output_dir = directory.path();
  options.endpoint = "localhost:5555";
  FakeRank rank(options, std::chrono::microseconds(100));
  REQUIRE(eventually(
      [&] { return rank.agent().status().ranks.size() == 1 && rank.agent().status().ranks[0].step > 20; }));
}

TEST_CASE("with write_back false a command leaves the file alone and says so") {
  const std::string text = R"({"write_back": false, "dynamic_on": false})";
  FakeJob job(2, text);
  const CommandReply reply = job.ask(CommandVerb::on, "one");
  REQUIRE(reply.message == "the config file was left as it is: write_back is false");
  REQUIRE(job.wait_for("one").outcome == CommandOutcome::done);
  REQUIRE(read_text(job.config_path()) == text);
  REQUIRE(job.divergence().empty());
}

TEST_CASE("a command that would make the config invalid changes nothing") {
  FakeJob job(1, R"({"dynamic_on": false})");
  Command command;
  command.verb = CommandVerb::set;
  command.request_id = "bad";
  command.edits = {{"step_interval", "0"}};
  const CommandReply reply = job.ask(command);
  REQUIRE(reply.outcome == CommandOutcome::invalid_config);
  REQUIRE(reply.message.find("step_interval") != std::string::npos);
  REQUIRE(read_text(job.config_path()) == R"({"dynamic_on": false})");
}

TEST_CASE("a broken save changes nothing and is told in the status") {
  FakeJob job(2, R"({"dynamic_on": true})");
  REQUIRE(eventually([&] { return job.ask(CommandVerb::status).status->state == "on"; }));
  write_text(job.config_path(), R"({"dynamic_on": tru)");
  REQUIRE(eventually([&] { return job.ask(CommandVerb::status).status->last_error.has_value(); }));
  REQUIRE(job.ask(CommandVerb::status).status->state == "on");
  REQUIRE(job.history().size() == 1);
  write_text(job.config_path(), R"({"dynamic_on": false})");
  REQUIRE(eventually([&] { return job.ask(CommandVerb::status).status->state == "off"; }));
  REQUIRE(job.divergence().empty());
}

TEST_CASE("a missing config is waited for") {
  FakeJob job(1, "{}");
  std::filesystem::remove(job.config_path());
  REQUIRE(eventually([&] { return job.ask(CommandVerb::status).status->mode == "dynamic"; }));
  write_text(job.config_path(), R"({"dynamic_on": true, "collect_times": 1})");
  REQUIRE(eventually([&] { return !job.history().empty() && job.history()[0].finished_step > 0; }));
}

TEST_CASE("the config that is told is the one in force") {
  FakeJob job(1, "{}");
  const auto told = [&job] { return job.ask(CommandVerb::config).config_text; };
  REQUIRE(eventually([&] { return told() == "{}"; }));
  const std::string on = R"({"dynamic_on": true, "collect_times": 1000000})";
  write_text(job.config_path(), on);
  REQUIRE(eventually([&] { return told() == on; }));
  write_text(job.config_path(), R"({"dynamic_on": 1})");
  REQUIRE(eventually([&] { return job.ask(CommandVerb::status).status->last_error.has_value(); }));
  REQUIRE(told() == on);
}

TEST_CASE("who listens hears every state that is broadcast") {
  AgentOptions options;
  options.torch = "1.2.3";
  options.hooks = {"grad_reduced"};
  FakeJob job(2, "{}", options);
  job.ask(CommandVerb::status);
  const auto jobs = live_jobs(*read_jobs(job.output()));
  StateFeed feed(jobs.front().state_endpoint);
  const auto hears = [&feed](const std::string& state) {
    return eventually([&] {
      const auto status = feed.next(std::chrono::milliseconds{100});
      return status && status->state == state && status->ranks.size() == 2 && status->torch == "1.2.3" &&
             status->hooks.size() == 1;
    });
  };
  REQUIRE(hears("off"));
  job.ask(CommandVerb::on);
  REQUIRE(hears("on"));
}

TEST_CASE("a rehearsed change is validated and asked of every rank and changes nothing") {
  FakeJob job(3, "{\"collect_times\": 5}");
  job.rank(1).matches = 7;
  Command command;
  command.verb = CommandVerb::rehearse;
  command.edits = {{"dynamic_on", "true"}};
  const auto rehearse = [&] {
    command.request_id = random_hex(8);
    return job.ask(command);
  };
  CommandReply reply;
  REQUIRE(eventually([&] {
    reply = rehearse();
    return reply.probed.size() == 3 && reply.probed[1].known && reply.probed[2].known;
  }));
  REQUIRE(reply.config_before == "{\"collect_times\": 5}");
  REQUIRE(reply.config_text == "{\"dynamic_on\": true, \"collect_times\": 5}");
  REQUIRE(reply.probed[0].matches == 1);
  REQUIRE(reply.probed[1].matches == 7);
  REQUIRE(reply.status->state == "on");
  command.edits = {{"collect_times", "-1"}};
  REQUIRE(rehearse().outcome == CommandOutcome::invalid_config);
  REQUIRE(read_text(job.config_path()) == "{\"collect_times\": 5}");
  REQUIRE(job.history().empty());
  write_text(job.config_path(), "{]");
  command.edits = {{"collect_times", "3"}};
  REQUIRE(eventually([&] { return rehearse().outcome == CommandOutcome::invalid_config; }));
}

TEST_CASE("targets are told whole by rank 0 and by the others where they are silent") {
  FakeJob job(2, "{}");
  CommandReply reply;
  REQUIRE(eventually([&] {
    reply = job.ask(CommandVerb::targets);
    return reply.probed.size() == 2 && reply.probed[0].known && reply.probed[1].known;
  }));
  CHECK(reply.status->state == "off");
  CHECK(reply.probed[0].targets.targets.size() == 2);
  CHECK(reply.probed[0].targets.targets[0].last_step == 7);
  const TargetList& other = reply.probed[1].targets;
  REQUIRE(other.targets.size() == 1);
  CHECK(other.targets[0].name == "fc2");
  CHECK(other.targets[0].silent_steps == 3);
  CHECK(other.targets[0].why == "frozen");
  CHECK(other.left_out == 1);
}

TEST_CASE("targets of another config are asked of every rank and change nothing") {
  FakeJob job(2, "{\"collect_times\": 5}");
  Command command;
  command.verb = CommandVerb::foresee;
  const auto foresee = [&] {
    command.request_id = random_hex(8);
    return job.ask(command);
  };
  CommandReply reply;
  REQUIRE(eventually([&] {
    reply = foresee();
    return reply.probed.size() == 2 && reply.probed[0].known && reply.probed[1].known;
  }));
  CHECK(reply.probed[1].targets.counts.watched == 5);
  CHECK(reply.probed[1].targets.unmatched.at(0).nearest == std::vector<std::string>{"fc1"});
  CHECK(reply.config_text.empty());
  command.config_text = "{\"collect_times\": 9}";
  CHECK(foresee().probed.at(0).targets.counts.watched == 9);
  command.edits = {{"collect_times", "11"}};
  CHECK(foresee().probed.at(0).targets.counts.watched == 11);
  command.config_text = "{]";
  CHECK(foresee().outcome == CommandOutcome::invalid_config);
  CHECK(read_text(job.config_path()) == "{\"collect_times\": 5}");
  CHECK(job.history().empty());
}

TEST_CASE("a broken save that is mended and taken by a command keeps no dry run back") {
  FakeJob job(1, R"({"dynamic_on": false})");
  const auto ask = [&job](CommandVerb verb, const char* times) {
    Command command;
    command.verb = verb;
    command.request_id = random_hex(8);
    command.edits = {{"collect_times", times}};
    return job.ask(command).outcome;
  };
  REQUIRE(eventually([&] { return ask(CommandVerb::rehearse, "3") == CommandOutcome::done; }));
  write_text(job.config_path(), "{]");
  REQUIRE(eventually([&] { return ask(CommandVerb::rehearse, "3") == CommandOutcome::invalid_config; }));
  // As long as it is open, only a command takes it at once.
  std::ofstream mended(job.config_path());
  mended << R"({"dynamic_on": false})" << std::flush;
  REQUIRE(ask(CommandVerb::set, "4") == CommandOutcome::done);
  CHECK(ask(CommandVerb::rehearse, "5") == CommandOutcome::done);
  CHECK(read_text(job.config_path()) == R"({"collect_times": 4, "dynamic_on": false})");
}

TEST_CASE("a job without a valid config tells none and says why") {
  FakeJob job(1, "{]");
  REQUIRE(eventually([&] {
    const CommandReply reply = job.ask(CommandVerb::config);
    return reply.outcome == CommandOutcome::failed && reply.message.find(":1:2: ") != std::string::npos;
  }));
}

TEST_CASE("static mode answers status and refuses commands") {
  AgentOptions options;
  options.mode = Mode::static_once;
  FakeJob job(2, "{}", options);
  REQUIRE(job.ask(CommandVerb::status).status->mode == "static");
  const CommandReply reply = job.ask(CommandVerb::on);
  REQUIRE(reply.outcome == CommandOutcome::failed);
  REQUIRE(reply.message.find("static mode") == 0);
  REQUIRE(eventually([&] { return job.rank(1).agent().job().has_value(); }));
  REQUIRE(job.rank(0).agent().job()->run_id == job.rank(1).agent().job()->run_id);
}

TEST_CASE("ranks and commands meet at a TCP endpoint on loopback where the user has accepted it") {
  AgentOptions options;
  options.loopback = InsecureLoopback::allowed;
  {
    auto probe = *Bus::listen("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", InsecureLoopback::allowed, {1000});
    options.endpoint = probe->endpoint();
  }
  FakeJob job(2, R"({"dynamic_on": false})", options);
  job.ask(CommandVerb::on, "one");
  REQUIRE(job.wait_for("one").outcome == CommandOutcome::done);
  REQUIRE(read_jobs(job.output())->front().endpoint == *options.endpoint);
  REQUIRE(job.divergence().empty());
}

TEST_CASE("a job of one rank whose endpoint is refused trains on and is switched by its file") {
  AgentOptions options;
  options.endpoint = "tcp://0.0.0.0:5555";
  FakeJob job(1, R"({"dynamic_on": true, "collect_times": 2})", options);
  REQUIRE(eventually(
      [&] { return read_text(job.config_path()) == R"({"dynamic_on": false, "collect_times": 2})"; }));
  REQUIRE(job.rank(0).agent().status().warnings.front().find("refusing to listen") == 0);
  REQUIRE(job.divergence().empty());
  REQUIRE(job.rank(0).collected == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("a job leaves nothing behind in the directory list and takes its socket away") {
  std::string endpoint;
  {
    FakeJob job(2, "{}");
    REQUIRE(eventually([&] { return !read_jobs(job.output())->empty(); }));
    endpoint = read_jobs(job.output())->front().endpoint;
    REQUIRE(job.divergence().empty());
    REQUIRE(read_jobs(job.output())->empty());
  }
  REQUIRE_FALSE(std::filesystem::exists(endpoint.substr(6)));
}

TEST_CASE("changes back to back are all accounted for and the last one holds") {
  FakeJob job(3, R"({"dynamic_on": false})");
  for (int i = 0; i < 20; ++i) {
    job.ask(i % 2 == 0 ? CommandVerb::on : CommandVerb::off, "r" + std::to_string(i));
  }
  job.ask(CommandVerb::on, "last");
  const CommandReply last = job.wait_for("last");
  REQUIRE(last.outcome == CommandOutcome::done);
  for (const HistoryEntry& entry : job.history()) {
    CAPTURE(entry.revision.value, entry.verdict, entry.reason);
    REQUIRE(!entry.verdict.empty());
  }
  REQUIRE(job.divergence().empty());
  REQUIRE(job.rank(0).ran.rbegin()->second == last.revision.value);
}

}  // namespace
}  // namespace gradmon
