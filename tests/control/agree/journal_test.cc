// SPDX-License-Identifier: Apache-2.0
#include "control/agree/journal.h"
#include "tests/support/catch.h"
#include "tests/tools/gradmonctl/sample_status.h"

namespace gradmon {
namespace {

HistoryEntry entry(std::uint64_t revision, std::string request_id) {
  HistoryEntry made;
  made.revision = Revision{revision};
  made.request_id = std::move(request_id);
  return made;
}

TEST_CASE("find_request returns the newest entry of a request") {
  Journal journal;
  journal.add(entry(1, "a"));
  journal.add(entry(2, "a"));
  journal.add(entry(3, "b"));
  REQUIRE(journal.find_request("a")->revision == Revision{2});
  REQUIRE(journal.find_request("c") == nullptr);
}

TEST_CASE("take_changed returns each changed entry once") {
  Journal journal;
  const auto first = journal.add(entry(1, "a"));
  journal.add(entry(2, "b"));
  REQUIRE(journal.take_changed().size() == 2);
  REQUIRE(journal.take_changed().empty());
  journal.find(first)->reason = "x";
  journal.touch(Revision{1});
  const auto changed = journal.take_changed();
  REQUIRE(changed.size() == 1);
  REQUIRE(changed.at(first).reason == "x");
}

TEST_CASE("the journal keeps the newest 10000 entries") {
  Journal journal;
  for (std::uint64_t i = 1; i <= 10'005; ++i) journal.add(entry(i, ""));
  REQUIRE(journal.entries().size() == 10'000);
  REQUIRE(journal.find(Revision{5}) == nullptr);
  REQUIRE(journal.find(Revision{10'005}) != nullptr);
}

TEST_CASE("refused changes push out no change of the job, and only so many are kept") {
  Journal journal;
  journal.add(entry(1, "a"));
  HistoryEntry refused;
  refused.verdict = "refused";
  for (int i = 0; i < 20'000; ++i) {
    refused.request_id = std::to_string(i);
    journal.add(refused);
  }
  CHECK(journal.entries().size() == 1 + Journal::kMostRefused);
  CHECK(journal.find(Revision{1}) != nullptr);
  CHECK(journal.find_request("19999") != nullptr);
  CHECK(journal.find_request("19899") == nullptr);
  CHECK(journal.take_changed().size() == 1 + Journal::kMostRefused);
}

TEST_CASE("the journal of a job of many ranks keeps fewer entries, and always the newest two") {
  HistoryEntry applied;
  for (int rank = 0; rank < 1'000; ++rank) applied.applied[rank] = 5;
  Journal journal;
  for (int i = 0; i < 300; ++i) journal.add(applied);
  CHECK(journal.entries().size() == Journal::kMostApplied / 1'000);
  CHECK(journal.take_changed().size() == Journal::kMostApplied / 1'000);
  for (int rank = 0; rank < 200'000; ++rank) applied.applied[rank] = 5;
  for (int i = 0; i < 3; ++i) journal.add(applied);
  CHECK(journal.entries().size() == 2);
}

TEST_CASE("reasons of a megabyte push out older entries before they fill the memory") {
  Journal journal;
  HistoryEntry aborted;
  aborted.reason.assign(std::size_t{1} << 20U, 'x');
  for (int i = 0; i < 40; ++i) journal.add(aborted);
  CHECK(journal.entries().size() == 16);
}

TEST_CASE("a rank agrees when it was heard within three seconds and has applied the revision") {
  Status status = sample_status();
  CHECK(count_agreeing_ranks(status).agreeing == 4);
  status.ranks[0].last_seen_ms = 2'999;
  CHECK(count_agreeing_ranks(status).agreeing == 4);
  status.ranks[0].last_seen_ms = 3'000;
  CHECK(count_agreeing_ranks(status).agreeing == 3);
  status.ranks[1].revision = Revision{6};
  CHECK(count_agreeing_ranks(status).agreeing == 2);
  CHECK(count_agreeing_ranks(status).counted == 4);
}

TEST_CASE("a rank that was never heard does not agree even before the first revision") {
  Status status = sample_status();
  status.revision = Revision{};
  for (RankStatus& rank : status.ranks) rank.revision = Revision{};
  status.ranks[3] = RankStatus{};
  CHECK(count_agreeing_ranks(status).agreeing == 3);
  CHECK(count_agreeing_ranks(status).counted == 4);
}

TEST_CASE("ranks that have ended or were dropped are named and not counted") {
  Status status = sample_status();
  status.ranks[1].rank = Rank{1};
  status.ranks[1].state = "left";
  status.ranks[3].rank = Rank{3};
  status.ranks[3].state = "dropped";
  status.ranks[3].waited_ms = 1'900;  // from its last message
  const AgreeingRanks agreement = count_agreeing_ranks(status);
  CHECK(agreement.agreeing == 2);
  CHECK(agreement.counted == 2);
  CHECK(agreement.ended == std::vector<int>{1});
  CHECK(agreement.dropped == std::vector<int>{3});
  CHECK(agreement.waited_ms == 0);
}

TEST_CASE("the wait of training is the longest wait of a rank") {
  Status status = sample_status();
  status.ranks[1].waited_ms = 200;
  status.ranks[2].waited_ms = 1'500;
  CHECK(count_agreeing_ranks(status).waited_ms == 1'500);
}

}  // namespace
}  // namespace gradmon
