// SPDX-License-Identifier: Apache-2.0
#include "control/agree/agreeing_ranks.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/tools/gradmonctl/sample_status.h"

namespace gradmon {
namespace {

TEST_CASE("a rank agrees when it was heard within three seconds and has applied the revision") {
  Status status = sample_status();
  CHECK(agreeing_ranks_of(status).agreeing == 4);
  status.ranks[0].last_seen_ms = 2'999;
  CHECK(agreeing_ranks_of(status).agreeing == 4);
  status.ranks[0].last_seen_ms = 3'000;
  CHECK(agreeing_ranks_of(status).agreeing == 3);
  status.ranks[1].revision = Revision{6};
  CHECK(agreeing_ranks_of(status).agreeing == 2);
  CHECK(agreeing_ranks_of(status).counted == 4);
}

TEST_CASE("a rank that was never heard does not agree even before the first revision") {
  Status status = sample_status();
  status.revision = Revision{};
  for (RankStatus& rank : status.ranks) rank.revision = Revision{};
  status.ranks[3] = RankStatus{};
  CHECK(agreeing_ranks_of(status).agreeing == 3);
  CHECK(agreeing_ranks_of(status).counted == 4);
}

TEST_CASE("ranks that have ended or were dropped are named and not counted") {
  Status status = sample_status();
  status.ranks[1].rank = Rank{1};
  status.ranks[1].state = "left";
  status.ranks[3].rank = Rank{3};
  status.ranks[3].state = "dropped";
  status.ranks[3].waited_ms = 1'900;  // from its last message
  const AgreeingRanks agreement = agreeing_ranks_of(status);
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
  CHECK(agreeing_ranks_of(status).waited_ms == 1'500);
}

}  // namespace
}  // namespace gradmon
