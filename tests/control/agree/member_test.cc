// SPDX-License-Identifier: Apache-2.0
#include "control/agree/member.h"

#include <chrono>
#include <memory>

#include "tests/control/agree/small_job.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

PlanPtr plan(bool on, std::string hash = "hash") {
  auto made = std::make_shared<Plan>();
  made->on = on;
  made->collect_times = 1'000;
  made->config_sha256 = std::move(hash);
  return made;
}

// One member; the test plays its coordinator.
struct MemberFixture {
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
  MemberActions deliver(Message message) {
    return member.on_envelope({epoch, Rank{0}, incarnation, std::move(message)}, now);
  }
  template <typename T>
  std::optional<T> answer(const MemberActions& actions) {
    for (const Message& one : actions.send) {
      if (const auto* found = std::get_if<T>(&one)) return *found;
    }
    return {};
  }
  template <typename T>
  T required(const MemberActions& actions) {
    const std::optional<T> found = answer<T>(actions);
    REQUIRE(found);
    return *found;
  }
  Hello join() {
    step();
    member.start(now);
    return required<Hello>(member.connected(now));
  }
  void welcome(const Hello& hello, bool starts_on = false) {
    Welcome welcome;
    welcome.process_id = "me";
    welcome.incarnation = incarnation;
    welcome.number = hello.number;
    welcome.epoch_starts_on = starts_on;
    welcome.epoch_order = epoch_order;
    welcome.last = last;
    deliver(welcome);
  }
  MemberActions prepare(std::uint64_t revision, PlanPtr asked, std::int64_t lookahead = 1) {
    deliver(Offer{Revision{revision}, asked});
    return deliver(Prepare{Revision{revision}, asked->config_sha256, lookahead, last});
  }
  MemberActions commit(std::uint64_t revision, PlanPtr decided, std::int64_t effective) {
    Verdict verdict;
    verdict.revision = Revision{revision};
    verdict.plan = std::move(decided);
    verdict.effective = Step{effective};
    last = {Revision{revision}, verdict};
    return deliver(Decided{last});
  }
  Hello reconnect() {
    member.disconnected();
    return required<Hello>(member.connected(now));
  }
  std::uint64_t report() { return std::get<Progress>(member.report(member.progress(), now)).number; }
  void begin_epoch(std::string name, const Hello& hello) {
    epoch = std::move(name);
    last = {};
    welcome(hello);
  }
  // Joins; then a plan that is on comes into force at step 1.
  void start_collecting() {
    welcome(join());
    REQUIRE(required<Ready>(prepare(1, plan(true))).fence == Step{1});
    commit(1, plan(true), 1);
    step();
    member.applied();
    REQUIRE(counted == std::vector<std::int64_t>{1});
  }
};

struct JoinedMember : MemberFixture {
  JoinedMember() { welcome(join()); }
};

struct CollectingMember : MemberFixture {
  CollectingMember() { start_collecting(); }
};

TEST_CASE("a rank that gave up before its first step does not wait at its second") {
  MemberFixture rank;
  rank.member.give_up("there is no hub program");
  rank.gate.hold(Step{1}, std::chrono::seconds{2});  // as Agent::start() does
  rank.member.start(rank.now);
  rank.step(3);
  CHECK(rank.next == Step{3});
}

TEST_CASE("an Offer is answered without a promise and a Prepare with a promise") {
  JoinedMember one;
  const PlanPtr asked = plan(true);
  const Offered offered = one.required<Offered>(one.deliver(Offer{Revision{1}, asked}));
  REQUIRE(offered.matches == 1);
  one.step(5);
  REQUIRE(one.next == Step{6});
  const Ready ready = one.required<Ready>(one.deliver(Prepare{Revision{1}, "hash", 2, {}}));
  REQUIRE(ready.fence == Step{7});
  one.step(5);
  REQUIRE(one.next == Step{7});
}

TEST_CASE("a long objection is cut between two characters") {
  JoinedMember one;
  one.objection = "x";
  for (int i = 0; i < 600; ++i) one.objection += "\xC3\xA4";
  const Reject reject = one.required<Reject>(one.deliver(Offer{Revision{1}, plan(true)}));
  CHECK(reject.reason == one.objection.substr(0, 999));
}

TEST_CASE("a repeated Prepare gets the same answer with the same fence") {
  JoinedMember one;
  const Ready first = one.required<Ready>(one.prepare(1, plan(true), 3));
  one.step(2);
  const Ready second = one.required<Ready>(one.prepare(1, plan(true), 3));
  REQUIRE(second.fence == first.fence);
}

TEST_CASE("a Prepare whose hash differs from the offer's is not answered") {
  JoinedMember one;
  one.deliver(Offer{Revision{1}, plan(true)});
  REQUIRE(one.deliver(Prepare{Revision{1}, "other", 1, {}}).send.empty());
}

TEST_CASE("a rank makes no second promise before it knows the verdict on the first") {
  JoinedMember one;
  one.prepare(1, plan(true), 5);
  REQUIRE_FALSE(one.answer<Ready>(one.prepare(2, plan(true), 1)));
  one.last.closed = Revision{1};
  REQUIRE(one.answer<Ready>(one.prepare(2, plan(true), 1)));
}

TEST_CASE("the lease counts from the time at which the acknowledged Progress was sent") {
  CollectingMember one;
  one.now = Ticks{5'000};
  const std::uint64_t number = one.report();
  one.now = Ticks{9'000};
  one.deliver(ProgressAck{number});
  one.now = Ticks{14'999};
  one.step();
  REQUIRE(one.counted.back() == 2);
  one.now = Ticks{15'000};
  one.step();
  REQUIRE(one.counted.back() == 2);
  REQUIRE(one.gate.lapsed());
}

TEST_CASE("a lapse is final and neither a late acknowledgement nor a late verdict undoes it") {
  CollectingMember one;
  const std::uint64_t number = one.report();
  one.now = Ticks{10'000};
  one.step();
  one.deliver(ProgressAck{number});
  one.commit(2, plan(true), 10);
  one.step(20);
  REQUIRE(one.counted.size() == 1);
  // It collects again only after the answer to a Hello that reports the lapse, and a new promise.
  const Hello hello = one.required<Hello>(one.member.tick(one.now + Ticks{250}));
  REQUIRE(hello.lapsed);
  REQUIRE_FALSE(hello.held);
  one.incarnation = 2;
  one.welcome(hello);
  REQUIRE(one.member.joined());
  one.step(5);
  REQUIRE(one.counted.size() == 1);
  REQUIRE(one.member.progress().applied == Revision{});
  const Ready ready = one.required<Ready>(one.prepare(3, plan(true)));
  one.commit(3, plan(true), ready.fence.value);
  one.step();
  REQUIRE(one.counted.size() == 2);
}

TEST_CASE("the next Hello reports a lapse that the trainer detected while the agent was disconnected") {
  CollectingMember one;
  one.member.disconnected();
  one.now = Ticks{10'000};
  one.step();
  const MemberActions actions = one.member.tick(one.now);
  REQUIRE(actions.warnings.size() == 1);
  const Hello hello = one.required<Hello>(one.member.connected(one.now));
  REQUIRE(hello.lapsed);
  one.incarnation = 2;
  one.welcome(hello);
  const Hello next = one.reconnect();
  REQUIRE(next.lapsed);  // It holds no commit yet.
  REQUIRE_FALSE(next.held);
}

TEST_CASE("a Hello carries the held commit and the answer to a repeated Hello sets the new incarnation") {
  CollectingMember one;
  const Hello hello = one.reconnect();
  REQUIRE_FALSE(hello.lapsed);
  REQUIRE(hello.held);
  REQUIRE(hello.held->revision == Revision{1});
  REQUIRE(hello.held_epoch == "epoch");
  const Hello again = one.required<Hello>(one.member.tick(one.now + Ticks{250}));
  one.incarnation = 2;
  one.welcome(hello);
  one.incarnation = 3;
  one.welcome(again);
  REQUIRE(one.member.to_coordinator(Disconnected{}).incarnation == 3);
}

TEST_CASE("a late off applies at the next boundary") {
  CollectingMember one;
  one.step(10);
  one.commit(2, plan(false), 5);
  const std::size_t counted = one.counted.size();
  one.step(10);
  REQUIRE(one.counted.size() == counted);
  REQUIRE_FALSE(one.gate.lapsed());
}

TEST_CASE("a rank that learns too late of a plan that is on lapses") {
  CollectingMember one;
  one.step(10);
  const MemberActions actions = one.commit(2, plan(true), 5);
  REQUIRE(actions.warnings.front() == "missed revision 2, effective at step 5");
  const std::size_t counted = one.counted.size();
  one.step(10);
  REQUIRE(one.counted.size() == counted);
  REQUIRE(one.required<Hello>(actions).lapsed);
}

TEST_CASE("a rank that has waited more than 2 s in ten minutes answers Busy to on and never to off") {
  CollectingMember one;
  std::uint64_t revision = 2;
  for (const Ticks wait : {Ticks{1'000}, Ticks{1'000}, Ticks{100}}) {
    REQUIRE(one.answer<Ready>(one.prepare(revision, plan(true))));
    one.step();
    one.now += wait;
    one.deliver(ProgressAck{one.report()});
    one.last.closed = Revision{revision++};
    one.deliver(Decided{one.last});
    one.step();
  }
  // It answers Busy to the Offer, before any rank has promised anything.
  REQUIRE(one.answer<Busy>(one.deliver(Offer{Revision{5}, plan(true)})));
  const Busy busy = one.required<Busy>(one.prepare(5, plan(true)));
  REQUIRE(busy.reason == "training has waited 2100 ms for verdicts");
  REQUIRE(one.answer<Ready>(one.prepare(6, plan(false))));
}

TEST_CASE("a rank with an open promise lapses at a Welcome of another epoch") {
  CollectingMember one;
  one.prepare(2, plan(true), 3);
  const Hello hello = one.reconnect();
  one.epoch = "next";
  one.last = {};
  Welcome welcome;
  welcome.process_id = "me";
  welcome.number = hello.number;
  welcome.epoch_order = 11;
  const Hello again = one.required<Hello>(one.deliver(welcome));
  REQUIRE(again.lapsed);
  one.step(10);
  REQUIRE(one.counted.size() == 1);
}

TEST_CASE("a new epoch does not renew the lease of the previous epoch's plan") {
  CollectingMember one;
  one.now = Ticks{5'000};
  const Hello hello = one.reconnect();
  one.begin_epoch("next", hello);
  one.step();
  REQUIRE(one.counted.size() == 2);  // It keeps its plan.
  one.deliver(ProgressAck{one.report()});
  one.now = Ticks{10'000};
  one.step();
  REQUIRE(one.counted.size() == 2);
  REQUIRE(one.gate.lapsed());
}

TEST_CASE("revisions that were applied or finished in one epoch are not reported in the next") {
  CollectingMember one;
  one.member.applied();
  REQUIRE(one.answer<Finished>(one.member.finished(Revision{1})));
  const Hello hello = one.reconnect();
  one.begin_epoch("next", hello);
  CHECK(one.member.progress().applied == Revision{});
  CHECK(one.member.progress().finished == Revision{});
  CHECK(one.member.finished(Revision{1}).send.empty());
  one.prepare(1, plan(false));
  one.commit(1, plan(false), one.next.value + 1);
  one.step();
  CHECK(one.member.applied().send.empty());
  one.step();
  CHECK(one.answer<Applied>(one.member.applied()));
}

TEST_CASE("a rank does not join an older epoch and joins a later one") {
  CollectingMember one;
  const Hello hello = one.reconnect();
  CHECK(hello.epoch_order == 10);
  one.epoch = "older";
  one.epoch_order = 9;
  one.last = {};
  one.welcome(hello);
  CHECK_FALSE(one.member.joined());
  CHECK(one.member.refused() == "the hub that answered belongs to an older epoch than this rank");
  one.step();
  CHECK(one.counted.size() == 2);  // It keeps its plan while its lease lasts.
  one.epoch = "later";
  one.epoch_order = 11;
  one.welcome(hello);
  CHECK(one.member.joined());
  CHECK(one.member.refused().empty());
}

TEST_CASE("a replaced process collects nothing and promises nothing") {
  CollectingMember one;
  one.deliver(Replaced{});
  one.step(10);
  REQUIRE(one.counted.size() == 1);
  REQUIRE(one.prepare(2, plan(true)).send.empty());
  REQUIRE(one.member.left_acknowledged());
}

TEST_CASE("RejoinRequest makes a rank send Hello and the rank keeps its plan") {
  CollectingMember one;
  const Hello hello = one.required<Hello>(one.deliver(RejoinRequest{}));
  REQUIRE_FALSE(hello.lapsed);
  REQUIRE(hello.held);
  REQUIRE(hello.held->revision == Revision{1});
  one.step();
  REQUIRE(one.counted == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("a rank that is off joins a hub of another epoch that its relay reaches instead of the first") {
  JoinedMember one;
  std::optional<Hello> hello;
  for (const Ticks begun = one.now; !hello && one.now - begun < 2 * kLease; one.now += Ticks{1'000}) {
    one.report();  // Nobody acknowledges it.
    hello = one.answer<Hello>(one.member.tick(one.now));
  }
  REQUIRE(hello);
  CHECK(one.now > kLease);
  one.epoch = "later";
  one.epoch_order = 11;
  one.welcome(*hello);
  CHECK(one.member.joined());
  one.deliver(ProgressAck{one.report()});
  for (int i = 0; i < 30; ++i) {
    one.now += Ticks{1'000};
    one.deliver(ProgressAck{one.report()});
    CHECK(one.member.tick(one.now).send.empty());
  }
}

TEST_CASE("a member drops messages of another incarnation") {
  CollectingMember one;
  one.incarnation = 7;
  one.deliver(Replaced{});
  REQUIRE_FALSE(one.member.replaced());
}

TEST_CASE("a rank without a lease collects nothing until it is heard again and resynced") {
  const bool cut_off = GENERATE(true, false);  // false: its agent hangs
  CollectingJob job(2);
  bool& trouble = cut_off ? job.process(1).partitioned : job.process(1).agent_stopped;
  trouble = true;
  job.run_ticks(1'010);
  REQUIRE(job.counted_in(100, 1) == 0);
  REQUIRE(job.process(0).revision == 1);
  trouble = false;
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  REQUIRE(job.last_entry().cause == "resync");
  REQUIRE(job.last_entry().by == "rank 1 has rejoined");
  REQUIRE(job.counted_divergence().empty());
}

TEST_CASE("a rank that joins while nothing is collected counts as off and no change is pending") {
  CollectingJob job(2, 5);
  const bool off = GENERATE(false, true);
  if (off) {
    job.propose(job.plan(false));
    REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  } else {
    REQUIRE(job.tick_until([&] { return job.write_backs.size() == 1; }));
  }
  job.restart(1, Step{100});
  job.run_ticks(100);
  REQUIRE(job.pending().empty());
  REQUIRE(job.coordinator().applied_by_all(Revision{off ? 2u : 1u}));
}

TEST_CASE("a second process with a rank's number is refused and the errors name both processes") {
  CollectingJob job(2);
  SmallJob::Process& second = job.start(1, Step{0});
  REQUIRE(job.tick_until([&] { return !second.warnings.empty(); }));
  REQUIRE(second.warnings.front() == "off: rank 1 already belongs to pid 102 on host");
  REQUIRE(job.coordinator().status().ranks[1].error == "pid 103 on host also claims this rank");
  job.run_ticks(2'000);
  REQUIRE(second.collected.empty());
  REQUIRE(job.processes()[1].revision == 1);
  // The error is cleared once the second process is gone.
  second.alive = false;
  job.run_ticks(400);
  REQUIRE(job.coordinator().status().ranks[1].error.empty());
}

TEST_CASE("status is on while the new process of rank 0 has not yet got the plan") {
  CollectingJob job(2);
  const SmallJob::Process& next = job.restart(0, Step{150});
  job.should_lose = [](bool up, const Envelope& one) {
    return up && std::holds_alternative<Offered>(one.message);
  };
  REQUIRE(job.tick_until([&] { return next.member->joined(); }));
  job.run_ticks(100);
  const Status status = job.coordinator().status();
  CHECK(status.state == "on");
  CHECK(status.revision == Revision{1});
  CHECK(status.reason.empty());
}

TEST_CASE("status shows a plan that only a dropped rank has applied") {
  CollectingJob job(2);
  job.process(1).trainer_stopped = true;
  job.propose(job.plan(true, 1'000'000));
  REQUIRE(job.tick_until([&] { return job.coordinator().status().revision == Revision{2}; }, 200));
  REQUIRE(job.process(1).revision == 1);
  job.kill(0);
  REQUIRE(job.tick_until([&] { return job.coordinator().status().ranks[0].state == "dropped"; }, 200));
  CHECK(job.coordinator().status().state == "on");
  CHECK(job.coordinator().status().revision == Revision{2});
}

TEST_CASE("an evicted rank stays evicted after the coordinator restarts") {
  CollectingJob job(3);
  job.evict(1);
  job.run_ticks(500);
  job.restart_coordinator(true);
  job.run_ticks(1'600);
  REQUIRE(job.coordinator().status().ranks[1].state == "dropped");
  REQUIRE(job.counted_in(500, 1) == 0);
  REQUIRE(job.process(0).revision == 1);
}

TEST_CASE("a rank that waits at its fence when the coordinator dies goes on after max_wait and is off") {
  SmallJob job(2, {0, 0, 9, 1});
  job.start_collecting();
  job.propose(job.plan(true, 5));
  REQUIRE(job.tick_until([&] { return job.process(1).waiting_since.has_value(); }, 100));
  job.kill_coordinator();
  REQUIRE(job.tick_until([&] { return !job.process(1).waiting_since; }, 250));
  REQUIRE(job.process(1).longest_wait <= Ticks{2'000});
  REQUIRE(job.process(1).revision == 0);
}

TEST_CASE("a change that waits to be retried says why the last attempt failed") {
  SmallJob job(2, {0, 0, 9, 1});
  job.start_collecting();
  const auto retried = [&] { return job.pending().rfind("waiting to be retried: ", 0) == 0; };
  for (int i = 0; i < 5 && !retried(); ++i) {
    job.propose(job.plan(true, 1'000'000));
    REQUIRE(job.tick_until([&] { return job.process(1).waiting_since.has_value() || retried(); }, 1'000));
    if (retried()) break;
    job.kill_coordinator();
    job.run_ticks(300);
    job.restart_coordinator(true);
    REQUIRE(job.tick_until([&] { return !job.coordinator().busy() || retried(); }, 1'000));
  }
  CHECK(retried());
  CHECK(job.pending().find("is busy: training has waited ") != std::string::npos);
}

TEST_CASE("a pause of the coordinator does not count as silence of its members") {
  CollectingJob job(2);
  job.coordinator_paused = true;
  job.run_ticks(3'000);
  job.coordinator_paused = false;
  job.run_ticks(5);
  REQUIRE(job.coordinator().status().ranks[1].state != "dropped");
  REQUIRE(job.tick_until([&] { return job.in_force_on_all(2); }));
  REQUIRE(job.counted_divergence().empty());
}

TEST_CASE("a commit takes effect after the last step that a dropped rank reported") {
  CollectingJob job(3);
  // Rank 2 runs ahead of the others and dies.
  job.process(0).trainer_stopped = job.process(1).trainer_stopped = true;
  job.run_ticks(300);
  job.kill(2);
  const Step last_reported = *job.process(2).last_reported;
  REQUIRE(last_reported > job.process(0).next + 100);
  job.run_ticks(3);
  job.process(0).trainer_stopped = job.process(1).trainer_stopped = false;
  job.propose(job.plan(true, 1'000'000));
  REQUIRE(job.tick_until([&] { return job.committed(2); }));
  REQUIRE(job.last_entry().effective_step > last_reported.value);
}

}  // namespace

}  // namespace gradmon
