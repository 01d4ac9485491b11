// SPDX-License-Identifier: Apache-2.0
#include "control/agree/membership.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

Hello hello(std::string process_id, std::uint64_t number = 1, bool lapsed = true) {
  Hello said;
  said.launch_id = "launch";
  said.world_size = 2;
  said.process_id = std::move(process_id);
  said.pid = 7;
  said.host = "h";
  said.number = number;
  said.lapsed = lapsed;
  return said;
}

struct Fixture {
  Membership members{{"", "", 0, "launch", 2}};

  Envelope from(std::uint64_t incarnation) { return {"", Rank{1}, incarnation, Progress{}}; }
};

TEST_CASE("a Hello that is repeated before its answer arrives gets the same incarnation") {
  Fixture f;
  const Welcome first = f.members.on_hello(Rank{1}, hello("a", 1), Ticks{0}).welcome;
  const Welcome doubled = f.members.on_hello(Rank{1}, hello("a", 1), Ticks{9}).welcome;
  const Welcome again = f.members.on_hello(Rank{1}, hello("a", 2), Ticks{250}).welcome;
  REQUIRE(first.refused.empty());
  REQUIRE(doubled.incarnation == first.incarnation);
  REQUIRE(again.incarnation == first.incarnation);
  REQUIRE(again.number == 2);
}

TEST_CASE("a Hello that arrives after a newer one changes nothing") {
  Fixture f;
  f.members.on_hello(Rank{1}, hello("a", 1), Ticks{0});
  const Welcome third = f.members.on_hello(Rank{1}, hello("a", 3), Ticks{500}).welcome;
  f.members.find(f.from(third.incarnation))->heard_since_hello = true;
  REQUIRE(f.members.on_hello(Rank{1}, hello("a", 2), Ticks{600}).late);
  REQUIRE(f.members.find(f.from(third.incarnation)) != nullptr);
}

TEST_CASE("a Hello of a process that has left does not admit it again") {
  Fixture f;
  f.members.on_hello(Rank{1}, hello("a", 1), Ticks{0});
  f.members.on_left(Rank{1}, Step{9});
  REQUIRE(f.members.on_hello(Rank{1}, hello("a", 1), Ticks{1}).late);
  REQUIRE(f.members.of(1).left());
}

TEST_CASE("a process that has lapsed gets a new incarnation and its earlier messages are dropped") {
  Fixture f;
  const Welcome first = f.members.on_hello(Rank{1}, hello("a", 1), Ticks{0}).welcome;
  f.members.find(f.from(first.incarnation))->heard_since_hello = true;
  const auto second = f.members.on_hello(Rank{1}, hello("a", 5), Ticks{9});
  REQUIRE(second.joined);
  REQUIRE(second.welcome.incarnation > first.incarnation);
  REQUIRE(f.members.find(f.from(first.incarnation)) == nullptr);
  REQUIRE(f.members.is_from_present_process(f.from(first.incarnation)));
}

TEST_CASE("a new process takes a dead process's rank number with a new incarnation") {
  Fixture f;
  const Welcome first = f.members.on_hello(Rank{1}, hello("a"), Ticks{0}).welcome;
  f.members.on_disconnected(Rank{1}, Ticks{1}, "its process ended");
  const auto second = f.members.on_hello(Rank{1}, hello("b"), Ticks{1});
  REQUIRE(second.welcome.refused.empty());
  REQUIRE(second.joined);
  REQUIRE(second.welcome.incarnation > first.incarnation);
  REQUIRE(f.members.find(f.from(first.incarnation)) == nullptr);
  REQUIRE_FALSE(f.members.is_from_present_process(f.from(first.incarnation)));
}

TEST_CASE("the last step of a rank that is gone or has lapsed is remembered") {
  Fixture f;
  f.members.on_hello(Rank{1}, hello("a"), Ticks{0});
  Progress progress;
  progress.number = 2;
  progress.step = Step{40};
  f.members.on_progress(f.members.of(1), progress, Ticks{1});
  REQUIRE_FALSE(f.members.last_departed_step());
  SECTION("gone") {
    f.members.on_disconnected(Rank{1}, Ticks{1}, "");
    REQUIRE(f.members.last_departed_step() == Step{40});
  }
  SECTION("lapsed") {
    Hello lapsed = hello("a", 3);
    lapsed.step = Step{45};
    f.members.on_hello(Rank{1}, lapsed, Ticks{2});
    REQUIRE(f.members.last_departed_step() == Step{45});
  }
}

TEST_CASE("a Hello of another launch or world size or version is refused with the reason") {
  Fixture f;
  Hello other = hello("a");
  SECTION("launch") { other.launch_id = "older"; }
  SECTION("world size") { other.world_size = 3; }
  SECTION("version") { other.version = 1; }
  const Welcome answer = f.members.on_hello(Rank{1}, other, Ticks{0}).welcome;
  REQUIRE_FALSE(answer.refused.empty());
  REQUIRE_FALSE(answer.retry);
  REQUIRE(f.members.why_not_ready(Ticks{0}) == answer.refused);
}

TEST_CASE("ranks that start at different steps are not ready until a plan was effective") {
  Fixture f;
  f.members.on_hello(Rank{0}, hello("a"), Ticks{0});
  Hello later = hello("b");
  later.start_iteration = Step{100};
  f.members.on_hello(Rank{1}, later, Ticks{0});
  REQUIRE(f.members.why_not_ready(Ticks{0}) ==
          "rank 1 starts at step 100, but a lower rank starts at step 0: all ranks need the same "
          "start_iteration");
  f.members.plan_was_effective();
  REQUIRE(f.members.why_not_ready(Ticks{0}).empty());
}

TEST_CASE("an evicted rank is dropped 15 s after its last acknowledgement and cannot return") {
  Fixture f;
  f.members.on_hello(Rank{0}, hello("b"), Ticks{0});
  f.members.on_hello(Rank{1}, hello("a"), Ticks{0});
  REQUIRE(f.members.evict(Rank{1}, "u"));
  f.members.of(0).last_heard = f.members.of(1).last_heard = Ticks{14'999};
  REQUIRE(f.members.why_not_ready(Ticks{14'999}) == "waiting until rank 1 is dropped (evicted by u)");
  REQUIRE(f.members.drop_silent(Ticks{14'999}).empty());
  REQUIRE(f.members.drop_silent(Ticks{15'000}) == std::vector<int>{1});
  REQUIRE(f.members.on_hello(Rank{1}, hello("a", 2), Ticks{15'001}).welcome.refused ==
          "rank 1 was evicted by u");
  REQUIRE(f.members.on_hello(Rank{1}, hello("c"), Ticks{15'002}).welcome.refused.empty());
}

TEST_CASE("a rank that is no longer waited for is dropped with a reason") {
  Fixture f;
  f.members.stop_waiting_for(Rank{1});
  CHECK(f.members.of(1).phase == Membership::Phase::dropped);
  CHECK(f.members.of(1).departure_reason == "never heard");
}

TEST_CASE("a restored member gets an incarnation above all earlier ones") {
  Fixture f;
  f.members.restore(JoinedEntry{Rank{1}, 7, hello("a")}, Ticks{0});
  f.members.begin_incarnation();
  REQUIRE(f.members.find(f.from(7)) == nullptr);
  REQUIRE(f.members.is_from_present_process(f.from(7)));
  const Welcome again = f.members.on_hello(Rank{1}, hello("a", 2, false), Ticks{1}).welcome;
  REQUIRE(again.incarnation > 7);
}

}  // namespace
}  // namespace gradmon
