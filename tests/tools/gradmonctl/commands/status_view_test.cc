// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/status_view.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/support/golden.h"
#include "tests/tools/gradmonctl/sample_status.h"

namespace gradmon {
namespace {

TEST_CASE("the first line of status has the state and the agreement and the dropped rows") {
  CHECK(status_line(sample_status()) ==
        "ON since step 1200 · 3 of 5 collections left · 4/4 ranks agree (revision 7) · 0 rows dropped");
}

TEST_CASE("a job that collects without a limit says so") {
  Status status = sample_status();
  status.collect_times = 100'000'000;
  CHECK(status_line(status) ==
        "ON since step 1200 · until it is turned off · 4/4 ranks agree (revision 7) · 0 rows dropped");
}

TEST_CASE("off is shown with its reason") {
  Status status = sample_status();
  status.state = "off";
  status.reason = "finished";
  CHECK(status_line(status) == "OFF: finished · 4/4 ranks agree (revision 7) · 0 rows dropped");
  status.reason = "rejected by rank 17: no target matches";
  CHECK(status_line(status) ==
        "OFF: rejected by rank 17: no target matches · 4/4 ranks agree (revision 7) · 0 rows dropped");
  status.revision = Revision{};
  for (RankStatus& rank : status.ranks) rank.revision = Revision{};
  status.reason = "never turned on";
  CHECK(status_line(status) == "OFF: never turned on · 4/4 ranks agree (no revision yet) · 0 rows dropped");
}

TEST_CASE("a pending change is shown with its reason while off and while on") {
  Status status = sample_status();
  status.pending = Pending{Revision{8}, "rank 3 has not stepped for 90 s", 0};
  CHECK(
      status_line(status) ==
      "ON since step 1200 · 3 of 5 collections left · revision 8 pending: rank 3 has not stepped for 90 s · "
      "4/4 ranks agree (revision 7) · 0 rows dropped");
  status.state = "off";
  CHECK(status_line(status) ==
        "OFF, revision 8 pending: rank 3 has not stepped for 90 s · 4/4 ranks agree (revision 7) · 0 rows "
        "dropped");
  status.pending->since = kSampleTime;
  CHECK(status_line(status) ==
        "OFF, revision 8 pending since 2026-07-06 12:34:56 UTC: rank 3 has not stepped for 90 s · "
        "4/4 ranks agree (revision 7) · 0 rows dropped");
  status.pending = Pending{Revision{}, "waiting for rank 3", 0};
  CHECK(status_line(status) ==
        "OFF, a change pending: waiting for rank 3 · 4/4 ranks agree (revision 7) · 0 rows dropped");
}

TEST_CASE("a reason of several lines is joined to one and the last error keeps its lines") {
  Status status = sample_status();
  status.state = "off";
  status.reason = "the newest edit is refused: a.json:1:2: one\na.json:3:4: two";
  status.last_error = LastError{kSampleTime, "a.json:1:2: one\na.json:3:4: two", 1};
  const std::string text = full_text(status_listing(status));
  CHECK(text.find("OFF: the newest edit is refused: a.json:1:2: one; a.json:3:4: two · ") == 0);
  CHECK(text.find("1 time in all): a.json:1:2: one\n  a.json:3:4: two\n") != std::string::npos);
}

TEST_CASE("after a rejected change the first line says so") {
  Status status = sample_status();
  status.reason = "rejected by rank 3: no such format";
  CHECK(status_line(status) ==
        "ON since step 1200 · 3 of 5 collections left · rejected by rank 3: no such format · "
        "4/4 ranks agree (revision 7) · 0 rows dropped");
  status.state = "off";
  CHECK(status_line(status) ==
        "OFF: rejected by rank 3: no such format · 4/4 ranks agree (revision 7) · 0 rows dropped");
  status.pending = Pending{Revision{8}, "takes effect at step 1300", 0};
  CHECK(status_line(status) ==
        "OFF, revision 8 pending: takes effect at step 1300 · rejected by rank 3: no such format · "
        "4/4 ranks agree (revision 7) · 0 rows dropped");
  status.reason = "turned off by me@host pid 1 (revision 7)";
  CHECK(status_line(status).find("turned off") == std::string::npos);
}

TEST_CASE("the first line says for how long training has waited") {
  Status status = sample_status();
  status.state = "off";
  status.pending = Pending{Revision{8}, "waiting for the answer of rank 3", 0};
  status.ranks[0].waited_ms = 300;
  status.ranks[1].waited_ms = 1'500;
  CHECK(status_line(status) ==
        "OFF, revision 8 pending: waiting for the answer of rank 3 · training has waited 1.5 s · "
        "4/4 ranks agree (revision 7) · 0 rows dropped");
}

TEST_CASE("the first line names ranks that were dropped or have ended and does not count them") {
  Status status = sample_status();
  status.ranks[3].state = "dropped";
  CHECK(status_line(status).find("3/3 ranks agree (revision 7), without rank 3 (dropped) · ") !=
        std::string::npos);
  status.ranks[0].state = status.ranks[1].state = "left";
  CHECK(status_line(status).find(
            "1/1 ranks agree (revision 7), without rank 3 (dropped), ranks 0, 1 ended · ") !=
        std::string::npos);
  status.ranks[2].state = "dropped";
  CHECK(status_line(status).find("no rank is left, without ranks 2, 3 (dropped) · ") != std::string::npos);
  for (RankStatus& rank : status.ranks) rank.state = "left";
  CHECK(status_line(status).find("every rank has ended · ") != std::string::npos);
}

TEST_CASE("the first line counts many dropped ranks instead of naming them") {
  Status status = sample_status();
  for (int rank = 4; rank < 1000; ++rank) {
    status.ranks.push_back(sample_rank(rank));
    if (rank % 2 == 1) status.ranks.back().state = "dropped";
  }
  CHECK(status_line(status).find("without 498 ranks (dropped) · ") != std::string::npos);
}

TEST_CASE("the dropped rows of all ranks are added up") {
  Status status = sample_status();
  status.ranks[0].dropped = 5;
  status.ranks[3].dropped = 7;
  CHECK(status_line(status).find(" · 12 rows dropped") != std::string::npos);
}

TEST_CASE("static mode is shown without an agreement") {
  Status status = sample_status();
  status.mode = "static";
  CHECK(status_line(status) == "ON since step 1200 · 3 of 5 collections left · static mode · 0 rows dropped");
}

TEST_CASE("status as text matches its golden files") {
  const std::string collecting = full_text(status_listing(sample_status()));
  CHECK(golden_difference("status_on.txt", collecting) == "");
  const std::string troubled = full_text(status_listing(troubled_status()));
  CHECK(golden_difference("status_troubled.txt", troubled) == "");
}

}  // namespace
}  // namespace gradmon
