// SPDX-License-Identifier: Apache-2.0
#include "control/agree/member.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

PlanPtr plan(bool on, std::string hash = "hash") {
  auto made = std::make_shared<Plan>();
  made->on = on;
  made->collect_times = 1'000;
  made->config_sha256 = std::move(hash);
  return made;
}

// One member; its coordinator is the test.
struct Alone {
  StepGate gate{Step{0}};
  std::string objection;  // to every plan that is on; "": none
  Member member{identity(), gate, [this](const Plan&) -> tl::expected<std::int64_t, std::string> {
                  if (!objection.empty()) return tl::unexpected(objection);
                  return 1;
                }};
  Ticks now{};
  Step next;
  KnownDecisions last;
  std::vector<std::int64_t> counted;
  std::string epoch = "epoch";
  std::int64_t epoch_order = 10;
  std::uint64_t incarnation = 1;

  static Member::Identity identity() {
    Member::Identity made;
    made.hello.launch_id = "launch";
    made.hello.process_id = "me";
    return made;
  }

  void step(int count = 1) {
    for (int i = 0; i < count; ++i, next = next + 1) {
      if (gate.try_begin(next)) continue;
      const Opening opening = gate.begin(next, now);
      if (opening.wait) return;
      if (opening.collect && gate.step_still_valid(now)) counted.push_back(next.value);
    }
  }
  MemberActions say(Message message) {
    return member.on_envelope({epoch, Rank{0}, incarnation, std::move(message)}, now);
  }
  template <typename T>
  std::optional<T> answer(const MemberActions& actions) {
    for (const Message& one : actions.send) {
      if (const auto* found = std::get_if<T>(&one)) return *found;
    }
    return {};
  }
  Hello join() {
    step();
    member.start(now);
    return *answer<Hello>(member.connected(now));
  }
  void welcome(const Hello& hello, bool starts_on = false) {
    Welcome welcome;
    welcome.process_id = "me";
    welcome.incarnation = incarnation;
    welcome.number = hello.number;
    welcome.epoch_starts_on = starts_on;
    welcome.epoch_order = epoch_order;
    welcome.last = last;
    say(welcome);
  }
  MemberActions prepare(std::uint64_t revision, PlanPtr asked, std::int64_t lookahead = 1) {
    say(Offer{Revision{revision}, asked});
    return say(Prepare{Revision{revision}, asked->config_sha256, lookahead, last});
  }
  MemberActions commit(std::uint64_t revision, PlanPtr decided, std::int64_t effective) {
    Verdict verdict;
    verdict.revision = Revision{revision};
    verdict.plan = std::move(decided);
    verdict.effective = Step{effective};
    last = {Revision{revision}, verdict};
    return say(Decided{last});
  }
  std::uint64_t report() { return std::get<Progress>(member.report(member.progress(now), now)).number; }
  // Joined, with a plan that is on in force from step 1.
  void go_on() {
    welcome(join());
    const auto ready = answer<Ready>(prepare(1, plan(true)));
    REQUIRE(ready->fence == Step{1});
    commit(1, plan(true), 1);
    step();
    member.applied();
    REQUIRE(counted == std::vector<std::int64_t>{1});
  }
};

TEST_CASE("the offer is answered without a promise and Prepare with one") {
  Alone one;
  one.welcome(one.join());
  const PlanPtr asked = plan(true);
  const auto offered = one.answer<Offered>(one.say(Offer{Revision{1}, asked}));
  REQUIRE(offered);
  REQUIRE(offered->matches == 1);
  one.step(5);
  REQUIRE(one.next == Step{6});
  const auto ready = one.answer<Ready>(one.say(Prepare{Revision{1}, "hash", 2, {}}));
  REQUIRE(ready->fence == Step{7});
  one.step(5);
  REQUIRE(one.next == Step{7});
}

TEST_CASE("a long objection is cut between two characters") {
  Alone one;
  one.welcome(one.join());
  one.objection = "x";
  for (int i = 0; i < 600; ++i) one.objection += "\xC3\xA4";
  const auto reject = one.answer<Reject>(one.say(Offer{Revision{1}, plan(true)}));
  REQUIRE(reject);
  CHECK(reject->reason == one.objection.substr(0, 999));
}

TEST_CASE("a repeated Prepare gets the same answer with the same fence") {
  Alone one;
  one.welcome(one.join());
  const auto first = one.answer<Ready>(one.prepare(1, plan(true), 3));
  one.step(2);
  const auto second = one.answer<Ready>(one.prepare(1, plan(true), 3));
  REQUIRE(second->fence == first->fence);
}

TEST_CASE("a Prepare with another hash than the offer's is not answered") {
  Alone one;
  one.welcome(one.join());
  one.say(Offer{Revision{1}, plan(true)});
  REQUIRE(one.say(Prepare{Revision{1}, "other", 1, {}}).send.empty());
}

TEST_CASE("a promised rank takes no second question before it has heard the verdict") {
  Alone one;
  one.welcome(one.join());
  one.prepare(1, plan(true), 5);
  REQUIRE_FALSE(one.answer<Ready>(one.prepare(2, plan(true), 1)));
  one.last.closed = Revision{1};
  REQUIRE(one.answer<Ready>(one.prepare(2, plan(true), 1)));
}

TEST_CASE("the lease counts from when the acknowledged Progress was sent") {
  Alone one;
  one.go_on();
  one.now = Ticks{5'000};
  const std::uint64_t number = one.report();
  one.now = Ticks{9'000};
  one.say(ProgressAck{number});
  one.now = Ticks{14'999};
  one.step();
  REQUIRE(one.counted.back() == 2);
  one.now = Ticks{15'000};
  one.step();
  REQUIRE(one.counted.back() == 2);
  REQUIRE(one.gate.lapsed());
}

TEST_CASE("a lapse is final: neither a late acknowledgement nor a late verdict takes it back") {
  Alone one;
  one.go_on();
  const std::uint64_t number = one.report();
  one.now = Ticks{10'000};
  one.step();
  one.say(ProgressAck{number});
  one.commit(2, plan(true), 10);
  one.step(20);
  REQUIRE(one.counted.size() == 1);
  // Only the answer to a Hello that says so, and then a promise, bring it in.
  const auto hello = one.answer<Hello>(one.member.tick(one.now + Ticks{250}));
  REQUIRE(hello);
  REQUIRE(hello->lapsed);
  REQUIRE_FALSE(hello->held);
  one.incarnation = 2;
  one.welcome(*hello);
  REQUIRE(one.member.joined());
  one.step(5);
  REQUIRE(one.counted.size() == 1);
  REQUIRE(one.member.progress(one.now).applied == Revision{});
  const auto ready = one.answer<Ready>(one.prepare(3, plan(true)));
  REQUIRE(ready);
  one.commit(3, plan(true), ready->fence.value);
  one.step();
  REQUIRE(one.counted.size() == 2);
}

TEST_CASE("a lapse that the trainer finds while its agent has no connection is told as one") {
  Alone one;
  one.go_on();
  one.member.disconnected();
  one.now = Ticks{10'000};
  one.step();
  const MemberActions actions = one.member.tick(one.now);
  REQUIRE(actions.warnings.size() == 1);
  const auto hello = one.answer<Hello>(one.member.connected(one.now));
  REQUIRE(hello->lapsed);
  one.incarnation = 2;
  one.welcome(*hello);
  one.member.disconnected();
  const auto next = one.answer<Hello>(one.member.connected(one.now));
  REQUIRE(next->lapsed);  // It still holds nothing.
  REQUIRE_FALSE(next->held);
}

TEST_CASE("a Hello tells what is held and a repeated answer of another place is taken") {
  Alone one;
  one.go_on();
  one.member.disconnected();
  const auto hello = one.answer<Hello>(one.member.connected(one.now));
  REQUIRE_FALSE(hello->lapsed);
  REQUIRE(hello->held->revision == Revision{1});
  REQUIRE(hello->held_epoch == "epoch");
  const auto again = one.answer<Hello>(one.member.tick(one.now + Ticks{250}));
  REQUIRE(again);
  one.incarnation = 2;
  one.welcome(*hello);
  one.incarnation = 3;
  one.welcome(*again);
  REQUIRE(one.member.to_coordinator(Disconnected{}).incarnation == 3);
}

TEST_CASE("a late off applies at the next boundary") {
  Alone one;
  one.go_on();
  one.step(10);
  one.commit(2, plan(false), 5);
  const std::size_t counted = one.counted.size();
  one.step(10);
  REQUIRE(one.counted.size() == counted);
  REQUIRE_FALSE(one.gate.lapsed());
}

TEST_CASE("a late on lapses") {
  Alone one;
  one.go_on();
  one.step(10);
  const MemberActions actions = one.commit(2, plan(true), 5);
  REQUIRE(actions.warnings.front() == "missed revision 2, effective at step 5");
  const std::size_t counted = one.counted.size();
  one.step(10);
  REQUIRE(one.counted.size() == counted);
  REQUIRE(one.answer<Hello>(actions)->lapsed);
}

TEST_CASE("a promise lapses after max_wait though the agent is dead and the rank goes on off") {
  Alone one;
  one.go_on();
  one.prepare(2, plan(true));
  one.step();
  REQUIRE(one.next == Step{2});
  one.now = Ticks{2'000};
  one.step(5);
  REQUIRE(one.next == Step{7});
  REQUIRE(one.counted.size() == 1);
}

TEST_CASE("a rank that has waited more than 2 s in ten minutes is Busy, but never to off") {
  Alone one;
  one.go_on();
  for (std::uint64_t revision = 2; revision <= 3; ++revision) {
    REQUIRE(one.answer<Ready>(one.prepare(revision, plan(true))));
    one.step();
    one.now += Ticks{1'050};
    one.say(ProgressAck{one.report()});
    one.last.closed = Revision{revision};
    one.say(Decided{one.last});
    one.step();
  }
  // It says so before anybody has promised anything.
  REQUIRE(one.answer<Busy>(one.say(Offer{Revision{4}, plan(true)})));
  const auto busy = one.answer<Busy>(one.prepare(4, plan(true)));
  REQUIRE(busy);
  REQUIRE(busy->reason == "training has waited 2100 ms for verdicts");
  REQUIRE(one.answer<Ready>(one.prepare(5, plan(false))));
}

TEST_CASE("a Welcome of another epoch lapses an open promise") {
  Alone one;
  one.go_on();
  one.prepare(2, plan(true), 3);
  one.member.disconnected();
  const auto hello = one.answer<Hello>(one.member.connected(one.now));
  one.epoch = "next";
  one.last = {};
  Welcome welcome;
  welcome.process_id = "me";
  welcome.number = hello->number;
  welcome.epoch_order = 11;
  const auto again = one.answer<Hello>(one.say(welcome));
  REQUIRE(again);
  REQUIRE(again->lapsed);
  one.step(10);
  REQUIRE(one.counted.size() == 1);
}

TEST_CASE("another epoch renews no lease of a plan in force before a commit of its own is") {
  Alone one;
  one.go_on();
  one.now = Ticks{5'000};
  one.member.disconnected();
  const auto hello = one.answer<Hello>(one.member.connected(one.now));
  one.epoch = "next";
  one.last = {};
  one.welcome(*hello);
  one.step();
  REQUIRE(one.counted.size() == 2);  // It keeps its plan.
  one.say(ProgressAck{one.report()});
  one.now = Ticks{10'000};
  one.step();
  REQUIRE(one.counted.size() == 2);
  REQUIRE(one.gate.lapsed());
}

TEST_CASE("what was applied and finished in another epoch is not said in the next") {
  Alone one;
  one.go_on();
  one.member.applied();
  REQUIRE(one.answer<Finished>(one.member.finished(Revision{1})));
  one.member.disconnected();
  const auto hello = one.answer<Hello>(one.member.connected(one.now));
  one.epoch = "next";
  one.last = {};
  one.welcome(*hello);
  CHECK(one.member.progress(one.now).applied == Revision{});
  CHECK(one.member.progress(one.now).finished == Revision{});
  CHECK(one.member.finished(Revision{1}).send.empty());
  one.prepare(1, plan(false));
  one.commit(1, plan(false), one.next.value + 1);
  one.step();
  CHECK(one.member.applied().send.empty());
  one.step();
  CHECK(one.answer<Applied>(one.member.applied()));
}

TEST_CASE("a rank does not go back to an older epoch, and goes to a later one") {
  Alone one;
  one.go_on();
  one.member.disconnected();
  const auto hello = one.answer<Hello>(one.member.connected(one.now));
  CHECK(hello->epoch_order == 10);
  one.epoch = "older";
  one.epoch_order = 9;
  one.last = {};
  one.welcome(*hello);
  CHECK_FALSE(one.member.joined());
  CHECK(one.member.refused() == "the hub that answered belongs to an older epoch than this rank");
  one.step();
  CHECK(one.counted.size() == 2);  // It keeps its plan while its lease lasts.
  one.epoch = "later";
  one.epoch_order = 11;
  one.welcome(*hello);
  CHECK(one.member.joined());
  CHECK(one.member.refused().empty());
}

TEST_CASE("a replaced process collects and promises nothing more") {
  Alone one;
  one.go_on();
  one.say(Replaced{});
  one.step(10);
  REQUIRE(one.counted.size() == 1);
  REQUIRE(one.prepare(2, plan(true)).send.empty());
  REQUIRE(one.member.left_acknowledged());
}

TEST_CASE("RejoinRequest makes a rank say Hello, and what it holds stays while its lease lasts") {
  Alone one;
  one.go_on();
  const auto hello = one.answer<Hello>(one.say(RejoinRequest{}));
  REQUIRE(hello);
  REQUIRE_FALSE(hello->lapsed);
}

TEST_CASE("a member drops what is of another place of its rank") {
  Alone one;
  one.go_on();
  one.incarnation = 7;
  one.say(Replaced{});
  REQUIRE_FALSE(one.member.replaced());
}

}  // namespace
}  // namespace gradmon
