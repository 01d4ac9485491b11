// SPDX-License-Identifier: Apache-2.0
// Which home of the register a job settles on: how a rank looks for them, what
// rank 0 makes of what all have seen, and who may write when.
#include "control/agree/home_sight.h"

#include "control/agree/member.h"
#include "control/agree/roster.h"
#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Homes = std::vector<Home>;
using Proof = tl::expected<void, std::string>;

Proof no(const char* why) { return tl::unexpected(std::string(why)); }

TEST_CASE("a rank that sees the directory leaves the store alone") {
  HomeSight sight;
  REQUIRE(sight.due(Ticks{0}, Home::undecided).empty());
  sight.begin(Ticks{0});
  REQUIRE(sight.due(Ticks{0}, Home::undecided) == Homes{Home::directory});
  REQUIRE(sight.due(Ticks{0}, Home::undecided).empty());
  sight.on_proof(Home::directory, {}, Ticks{5});
  REQUIRE(sight.joined().shares_directory);
  REQUIRE(sight.due(Ticks{6}, Home::undecided).empty());
  REQUIRE(sight.due(Ticks{60'000}, Home::directory).empty());
}

TEST_CASE("a rank that sees the directory looks into the store where the job cannot agree") {
  HomeSight sight;
  sight.begin(Ticks{0});
  sight.due(Ticks{0}, Home::undecided);
  sight.on_proof(Home::directory, {}, Ticks{5});
  REQUIRE(sight.due(Ticks{999}, Home::undecided).empty());
  REQUIRE(sight.due(Ticks{1000}, Home::undecided) == Homes{Home::store});
}

TEST_CASE("a rank without the directory looks into the store at once") {
  HomeSight sight;
  sight.begin(Ticks{0});
  sight.due(Ticks{0}, Home::undecided);
  sight.on_proof(Home::directory, no("no directory"), Ticks{5});
  REQUIRE_FALSE(sight.sees_none());
  REQUIRE(sight.due(Ticks{5}, Home::undecided) == Homes{Home::store});
  sight.on_proof(Home::store, no("no store"), Ticks{9});
  REQUIRE(sight.sees_none());
  REQUIRE(sight.joined().reason == "no directory; no store");
}

TEST_CASE("a directory that hangs does not keep a rank from the store") {
  HomeSight sight;
  sight.begin(Ticks{0});
  REQUIRE(sight.due(Ticks{0}, Home::undecided) == Homes{Home::directory});
  REQUIRE(sight.due(Ticks{1000}, Home::undecided) == Homes{Home::store});
}

TEST_CASE("what was not there is looked for again every second") {
  HomeSight sight;
  sight.begin(Ticks{0});
  sight.due(Ticks{0}, Home::undecided);
  sight.on_proof(Home::directory, no("a"), Ticks{5});
  sight.due(Ticks{5}, Home::undecided);
  sight.on_proof(Home::store, no("b"), Ticks{9});
  REQUIRE(sight.due(Ticks{1004}, Home::undecided).empty());
  REQUIRE(sight.due(Ticks{1009}, Home::undecided) == Homes{Home::directory, Home::store});
  sight.on_proof(Home::directory, {}, Ticks{1010});
  REQUIRE(sight.joined().shares_directory);
}

TEST_CASE("a rank looks only into the home that the job has settled on") {
  HomeSight sight;
  sight.begin(Ticks{0});
  REQUIRE(sight.due(Ticks{0}, Home::store) == Homes{Home::store});
  sight.on_proof(Home::store, no("b"), Ticks{9});
  REQUIRE(sight.due(Ticks{1009}, Home::store) == Homes{Home::store});
}

class ThreeRanks {
 public:
  ThreeRanks() {
    for (int rank = 0; rank < 3; ++rank) hello(rank, "p" + std::to_string(rank));
  }
  void hello(int rank, const std::string& process) {
    Hello said;
    said.launcher_id = "launch";
    said.world_size = 3;
    said.process_id = process;
    roster.on_hello(Rank{rank}, said, Ticks{0});
  }
  void joined(int rank, Joined said) { roster.on_joined(Rank{rank}, roster.seat(rank), said); }

  Roster roster{{3, "launch", Step{0}}, [](const Hello&) { return Roster::Liveness::gone; }};
};

TEST_CASE("no home is settled on before all ranks have looked") {
  ThreeRanks job;
  job.joined(0, {true, "", true});
  job.joined(1, {true, "", true});
  REQUIRE(job.roster.settle_home() == Home::undecided);
  REQUIRE(job.roster.unready() == "waiting for rank 2");
}

TEST_CASE("the directory is the home where all ranks see it") {
  ThreeRanks job;
  for (int rank = 0; rank < 3; ++rank) job.joined(rank, {true, "", true});
  REQUIRE(job.roster.settle_home() == Home::directory);
  REQUIRE(job.roster.unready().empty());
}

TEST_CASE("the store is the home where one rank does not see the directory") {
  ThreeRanks job;
  job.joined(0, {true, "", false});
  job.joined(1, {false, "sees no directory", true});
  job.joined(2, {true, "", true});
  REQUIRE(job.roster.settle_home() == Home::undecided);
  REQUIRE(job.roster.unready() == "the ranks have no register in common: rank 1 sees no directory");
  job.joined(0, {true, "", true});
  REQUIRE(job.roster.settle_home() == Home::store);
  REQUIRE(job.roster.unready().empty());
}

TEST_CASE("a rank that sees no home is named with its reason") {
  ThreeRanks job;
  job.joined(0, {true, "", true});
  job.joined(1, {true, "", true});
  job.joined(2, {false, "sees no directory; no store", false});
  REQUIRE(job.roster.settle_home() == Home::undecided);
  REQUIRE(job.roster.unready() == "rank 2: sees no directory; no store");
}

TEST_CASE("a home is for good and a rank that comes back must see that one") {
  ThreeRanks job;
  for (int rank = 0; rank < 3; ++rank) job.joined(rank, {false, "sees no directory", true});
  REQUIRE(job.roster.settle_home() == Home::store);
  job.hello(1, "another");
  job.joined(1, {true, "no store", false});
  REQUIRE(job.roster.settle_home() == Home::store);
  REQUIRE(job.roster.unready() == "rank 1: no store");
  job.joined(1, {true, "", true});
  REQUIRE(job.roster.unready().empty());
}

TEST_CASE("a late letter takes no home away that a rank has seen") {
  ThreeRanks job;
  for (int rank = 0; rank < 3; ++rank) job.joined(rank, {true, "", false});
  job.joined(2, {false, "sees no directory", false});
  REQUIRE(job.roster.settle_home() == Home::directory);
}

struct OneMember {
  OneMember() { welcome.process_id = "p"; }
  static Member::Identity identity() {
    Member::Identity made;
    made.rank = Rank{1};
    made.process_id = "p";
    return made;
  }
  Welcome welcome;
  StepGate gate{Step{0}};
  Member member{identity(), gate, [](const Plan&) { return 1; }};
};

TEST_CASE("a rank that comes back before there is a home writes nothing") {
  OneMember one;
  one.welcome.rejoined = true;
  const MemberActions actions = one.member.on_message(one.welcome);
  REQUIRE_FALSE(actions.write);
  REQUIRE_FALSE(one.member.tick(Ticks{500}).write);
}

TEST_CASE("a rank that comes back closes what is open in the home that it is told") {
  OneMember one;
  one.welcome.rejoined = true;
  one.welcome.last.home = Home::store;
  const MemberActions actions = one.member.on_message(one.welcome);
  REQUIRE(actions.write);
  REQUIRE(one.member.home() == Home::store);
  REQUIRE(actions.prove_in_store);
  REQUIRE_FALSE(actions.prove);
}

TEST_CASE("a rank learns the home from any last word and keeps it") {
  OneMember one;
  one.member.on_message(one.welcome);
  REQUIRE(one.member.home() == Home::undecided);
  LastWord last;
  last.home = Home::store;
  one.member.on_message(Decided{last});
  REQUIRE(one.member.home() == Home::store);
  REQUIRE(one.member.progress().home == Home::store);
  last.home = Home::directory;
  last.closed = Revision{1};
  one.member.on_message(Decided{last});
  REQUIRE(one.member.home() == Home::store);
}

}  // namespace
}  // namespace gradmon
