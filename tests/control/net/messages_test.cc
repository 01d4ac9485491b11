// SPDX-License-Identifier: Apache-2.0
#include "control/net/messages.h"

#include <random>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

template <class T>
T round_trip(const Message& message) {
  const Letter letter{"epoch", Rank{3}, 7, message};
  const auto frame = decode_frame(encode(Frame(letter)));
  REQUIRE(frame);
  const auto& back = std::get<Letter>(*frame);
  REQUIRE(back.epoch == "epoch");
  REQUIRE(back.rank == Rank{3});
  REQUIRE(back.incarnation == 7);
  return std::get<T>(back.message);
}

LastWord last_word() {
  auto plan = std::make_shared<Plan>();
  plan->on = true;
  plan->config_text = std::string("{\0 \xff}", 5);
  plan->collect_times = 3;
  plan->by = "somebody";
  plan->max_overhead = 0.01;
  LastWord last;
  last.closed = Revision{9};
  last.home = Home::directory;
  last.commit = Verdict{Revision{8}, plan, Step{100}, AbortReason::none, "", "author"};
  return last;
}

TEST_CASE("every message comes back as it was sent") {
  REQUIRE(round_trip<Hello>(Hello{"l", 4, "h", 1, 2, "p", Step{5}, 1}).start_iteration == Step{5});
  REQUIRE(round_trip<Joined>(Joined{true, "x", false}).shares_directory);
  REQUIRE(round_trip<Joined>(Joined{false, "x", true}).shares_store);
  REQUIRE(round_trip<Ready>(Ready{Revision{1}, "p", "s", 2, Step{3}, "u"}).fence == Step{3});
  REQUIRE(round_trip<Ready>(Ready{Revision{1}, "p", "s", 2, Step{3}, "u"}).unmatched == "u");
  REQUIRE(round_trip<Reject>(Reject{Revision{1}, "why"}).reason == "why");
  REQUIRE(round_trip<Applied>(Applied{Revision{1}, Step{4}}).step == Step{4});
  REQUIRE(round_trip<Finished>(Finished{Revision{6}}).revision == Revision{6});
  REQUIRE(round_trip<Missed>(Missed{Revision{6}}).revision == Revision{6});
  REQUIRE(round_trip<Left>(Left{Step{6}}).last == Step{6});
  Progress progress;
  progress.step = Step{12};
  progress.step_ms = 1.5;
  progress.finished = Revision{2};
  progress.shares_directory = true;
  progress.home = Home::store;
  progress.error = "\x01\xff";
  progress.targets = {24, 3, 1};
  progress.skipped = {5, Step{11}};
  progress.overhead = {Revision{4}, 9, 0.041, 16};
  const Progress back = round_trip<Progress>(progress);
  REQUIRE(back.step_ms == 1.5);
  REQUIRE(back.overhead.revision == Revision{4});
  REQUIRE(back.overhead.collected == 9);
  REQUIRE(back.targets.watched == 24);
  REQUIRE(back.targets.silent == 3);
  REQUIRE(back.targets.unmatched == 1);
  REQUIRE(back.skipped.count == 5);
  REQUIRE(back.skipped.last == Step{11});
  REQUIRE(back.overhead.share == 0.041);
  REQUIRE(back.overhead.steps == 16);
  REQUIRE(back.finished == Revision{2});
  REQUIRE(back.shares_directory);
  REQUIRE_FALSE(back.shares_store);
  REQUIRE(back.home == Home::store);
  REQUIRE(back.error == "\x01\xff");
  const Decided decided = round_trip<Decided>(Decided{last_word()});
  REQUIRE(decided.last.commit->plan->config_text == last_word().commit->plan->config_text);
  REQUIRE(decided.last.commit->plan->max_overhead == 0.01);
  Prepare prepare{Revision{2}, "p", last_word().commit->plan, 5, Ticks{70}, last_word()};
  REQUIRE(round_trip<Prepare>(prepare).doubt_after == Ticks{70});
  Welcome welcome;
  welcome.rejoined = true;
  welcome.last = last_word();
  REQUIRE(round_trip<Welcome>(welcome).last.closed == Revision{9});
  REQUIRE(round_trip<Welcome>(welcome).last.home == Home::directory);
  round_trip<LeftHeard>(LeftHeard{});
  round_trip<Replaced>(Replaced{});
  REQUIRE(round_trip<Ping>(Ping{7}).number == 7);
  REQUIRE(round_trip<Pong>(Pong{7}).number == 7);
  REQUIRE(round_trip<Probe>(Probe{"id", last_word().commit->plan, 0}).plan->by == "somebody");
  REQUIRE_FALSE(round_trip<Probe>(Probe{"id", nullptr, 0}).plan);
  REQUIRE(round_trip<Probe>(Probe{"id", nullptr, 512}).room == 512);
  Probed probed{"id", 3, "no", {}};
  probed.targets.counts = {7, 1, 1};
  probed.targets.unmatched = {{"fc9", {"fc1", "fc2"}, "why"}};
  probed.targets.targets = {{"actv", "fc1", -1, 0, 5, "frozen"}};
  probed.targets.left_out = 6;
  const Probed said = round_trip<Probed>(probed);
  REQUIRE(said.matches == 3);
  REQUIRE(said.targets.counts.watched == 7);
  REQUIRE(said.targets.unmatched.at(0).nearest == std::vector<std::string>{"fc1", "fc2"});
  REQUIRE(said.targets.unmatched[0].error == "why");
  REQUIRE(said.targets.targets.at(0).last_step == -1);
  REQUIRE(said.targets.targets[0].silent_steps == 5);
  REQUIRE(said.targets.targets[0].why == "frozen");
  REQUIRE(said.targets.left_out == 6);
  round_trip<Closing>(Closing{});
}

TEST_CASE("a status and a history come back as they were sent") {
  CommandReply reply;
  reply.outcome = CommandOutcome::partial;
  reply.status = Status{};
  reply.status->pending = Pending{Revision{2}, "waiting", 5};
  reply.status->last_error = LastError{1, "text", 3};
  reply.status->ranks.resize(2);
  reply.status->ranks[1].state = "collecting";
  reply.status->ranks[1].overhead.share = 0.5;
  reply.history.resize(1);
  reply.history[0].applied = {{0, 4}, {7, 4}};
  const auto frame = decode_frame(encode(Frame(AddressedReply{"id", reply})));
  const auto& back = std::get<AddressedReply>(*frame);
  REQUIRE(back.request_id == "id");
  REQUIRE(back.reply.outcome == CommandOutcome::partial);
  REQUIRE(back.reply.status->pending->reason == "waiting");
  REQUIRE(back.reply.status->last_error->count == 3);
  REQUIRE(back.reply.status->ranks[1].state == "collecting");
  REQUIRE(back.reply.status->ranks[1].overhead.share == 0.5);
  REQUIRE(back.reply.history[0].applied == reply.history[0].applied);
}

TEST_CASE("a plan with numbers out of range is refused") {
  for (auto spoil :
       {+[](Plan& plan) { plan.step_interval = 0; }, +[](Plan& plan) { plan.collect_times = -1; },
        +[](Plan& plan) { plan.lookahead = 0; }, +[](Plan& plan) { plan.max_overhead = 0; }}) {
    auto plan = std::make_shared<Plan>();
    spoil(*plan);
    Verdict verdict;
    verdict.plan = plan;
    REQUIRE_FALSE(decode_verdict(encode(verdict)));
  }
}

TEST_CASE("an abort is no commit whatever else it says") {
  LastWord last;
  last.closed = Revision{1};
  last.commit = Verdict{};
  REQUIRE_FALSE(decode_frame(encode(Frame(Letter{"e", Rank{0}, 1, Decided{last}}))));
}

TEST_CASE("random bytes are an error or a value and never a crash") {
  std::mt19937 random(7);
  const std::string honest = encode(Frame(Letter{"e", Rank{0}, 1, Decided{last_word()}}));
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = i % 2 == 0 ? honest : std::string(random() % 200, '\0');
    for (std::size_t flips = 1 + random() % 8; flips > 0 && !bytes.empty(); --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (auto frame = decode_frame(bytes)) REQUIRE(decode_frame(encode(*frame)));
    if (auto verdict = decode_verdict(bytes)) REQUIRE(decode_verdict(encode(*verdict)));
  }
}

}  // namespace
}  // namespace gradmon
