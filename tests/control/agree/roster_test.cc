// SPDX-License-Identifier: Apache-2.0
#include "control/agree/roster.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

Hello hello(std::string process_id) {
  Hello said;
  said.launcher_id = "launch";
  said.world_size = 2;
  said.process_id = std::move(process_id);
  said.pid = 7;
  said.host = "h";
  return said;
}

struct Fixture {
  Roster::Liveness liveness = Roster::Liveness::lives;
  Roster roster{{2, "launch", Step{0}}, [this](const Hello&) { return liveness; }};
};

TEST_CASE("a repeated Hello gets the same answer") {
  Fixture f;
  const Welcome first = f.roster.on_hello(Rank{1}, hello("a"), Ticks{0});
  const Welcome second = f.roster.on_hello(Rank{1}, hello("a"), Ticks{9});
  REQUIRE(first.refused.empty());
  REQUIRE(second.incarnation == first.incarnation);
  REQUIRE_FALSE(second.rejoined);
}

TEST_CASE("a rank number is refused while its process lives") {
  Fixture f;
  f.roster.on_hello(Rank{1}, hello("a"), Ticks{0});
  const Welcome second = f.roster.on_hello(Rank{1}, hello("b"), Ticks{1});
  REQUIRE(second.refused == "rank 1 is taken by pid 7 on h");
  REQUIRE(second.again);
}

TEST_CASE("the next process takes a dead one's number with a new incarnation") {
  Fixture f;
  const Welcome first = f.roster.on_hello(Rank{1}, hello("a"), Ticks{0});
  f.liveness = Roster::Liveness::gone;
  const Welcome second = f.roster.on_hello(Rank{1}, hello("b"), Ticks{1});
  REQUIRE(second.refused.empty());
  REQUIRE(second.rejoined);
  REQUIRE(second.incarnation > first.incarnation);
  REQUIRE(f.roster.find({"", Rank{1}, first.incarnation, Progress{}}) == nullptr);
}

TEST_CASE("a process on another host keeps its number while it answers a Ping") {
  Fixture f;
  f.liveness = Roster::Liveness::unknown;
  f.roster.on_hello(Rank{1}, hello("a"), Ticks{0});
  REQUIRE(f.roster.on_hello(Rank{1}, hello("b"), Ticks{1000}).again);
  const auto pings = f.roster.pings_due(Ticks{1000});
  REQUIRE(pings.size() == 1);
  REQUIRE(pings.front().first == 1);
  f.roster.on_pong(f.roster.seat(1), Pong{pings.front().second.number});
  REQUIRE(f.roster.pings_due(Ticks{1250}).empty());
  REQUIRE(f.roster.on_hello(Rank{1}, hello("b"), Ticks{4000}).again);
}

TEST_CASE("a process on another host that answers none of eight Pings loses its number") {
  Fixture f;
  f.liveness = Roster::Liveness::unknown;
  const Welcome first = f.roster.on_hello(Rank{1}, hello("a"), Ticks{0});
  std::size_t pings = 0;
  for (Ticks now{1000}; now < Ticks{3000}; now += Ticks{50}) {
    REQUIRE_FALSE(f.roster.on_hello(Rank{1}, hello("b"), now).refused.empty());
    pings += f.roster.pings_due(now).size();
  }
  REQUIRE(pings == 8);
  const Welcome second = f.roster.on_hello(Rank{1}, hello("b"), Ticks{3000});
  REQUIRE(second.refused.empty());
  REQUIRE(second.rejoined);
  REQUIRE(second.incarnation == first.incarnation + 1);
}

TEST_CASE("an answer to an earlier claim does not defend against the next") {
  Fixture f;
  f.liveness = Roster::Liveness::unknown;
  f.roster.on_hello(Rank{1}, hello("a"), Ticks{0});
  f.roster.on_hello(Rank{1}, hello("b"), Ticks{0});
  const auto early = f.roster.pings_due(Ticks{0}).front().second;
  f.roster.on_hello(Rank{1}, hello("b"), Ticks{60'000});
  f.roster.on_pong(f.roster.seat(1), Pong{early.number});
  REQUIRE(f.roster.on_hello(Rank{1}, hello("b"), Ticks{62'000}).refused.empty());
}

TEST_CASE("strangers are refused by name") {
  Fixture f;
  Hello other = hello("x");
  other.launcher_id = "yesterday";
  REQUIRE(f.roster.on_hello(Rank{1}, other, Ticks{0}).refused.find("yesterday") != std::string::npos);
  Hello late = hello("x");
  late.start_iteration = Step{5};
  REQUIRE(f.roster.on_hello(Rank{1}, late, Ticks{0}).refused == "rank 1 starts at step 5, rank 0 at step 0");
  REQUIRE(f.roster.unready() == "waiting for rank 0");
  Hello big = hello("x");
  big.world_size = 3;
  REQUIRE_FALSE(f.roster.on_hello(Rank{1}, big, Ticks{0}).refused.empty());
  REQUIRE_FALSE(f.roster.on_hello(Rank{2}, hello("x"), Ticks{0}).refused.empty());
}

TEST_CASE("a late message takes nothing back") {
  Fixture f;
  f.roster.on_hello(Rank{0}, hello("a"), Ticks{0});
  Progress newer;
  newer.applied = Revision{4};
  newer.applied_step = Step{40};
  f.roster.on_progress(f.roster.seat(0), newer, Ticks{1});
  Progress older;
  older.applied = Revision{3};
  older.applied_step = Step{30};
  f.roster.on_progress(f.roster.seat(0), older, Ticks{2});
  REQUIRE(f.roster.seat(0).progress.applied == Revision{4});
  REQUIRE(f.roster.seat(0).progress.applied_step == Step{40});
}

}  // namespace
}  // namespace gradmon
