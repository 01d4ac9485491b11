// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/status_text.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "tests/tools/golden.h"
#include "tests/tools/sample_status.h"

namespace gradmon {
namespace {

TEST_CASE("the first line of status is the answer") {
  CHECK(status_line(sample_status()) ==
        "ON since step 1200 · 3 of 5 collections left · 4/4 ranks agree (revision 7) · 0 dropped");
}

TEST_CASE("off comes with its reason") {
  Status status = sample_status();
  status.state = "off";
  status.reason = "finished";
  CHECK(status_line(status) == "OFF: finished · 4/4 ranks agree (revision 7) · 0 dropped");
  status.reason = "rejected by rank 17: no target matches";
  CHECK(status_line(status) ==
        "OFF: rejected by rank 17: no target matches · 4/4 ranks agree (revision 7) · 0 dropped");
  status.revision = Revision{};
  for (RankStatus& rank : status.ranks) rank.revision = Revision{};
  status.reason = "not asked for";
  CHECK(status_line(status) == "OFF: not asked for · 4/4 ranks agree (no revision yet) · 0 dropped");
}

TEST_CASE("a pending change comes with its reason while off and while on") {
  Status status = sample_status();
  status.pending = Pending{Revision{8}, "rank 3 has not stepped for 90 s", 0};
  CHECK(
      status_line(status) ==
      "ON since step 1200 · 3 of 5 collections left · revision 8 pending: rank 3 has not stepped for 90 s · "
      "4/4 ranks agree (revision 7) · 0 dropped");
  status.state = "off";
  CHECK(
      status_line(status) ==
      "OFF, revision 8 pending: rank 3 has not stepped for 90 s · 4/4 ranks agree (revision 7) · 0 dropped");
  status.pending = Pending{Revision{}, "waiting for rank 3", 0};
  CHECK(status_line(status) ==
        "OFF, a change pending: waiting for rank 3 · 4/4 ranks agree (revision 7) · 0 dropped");
}

TEST_CASE("a rank agrees when it runs that revision or has left") {
  Status status = sample_status();
  status.ranks[1].revision = Revision{6};
  CHECK(status_line(status).find("3/4 ranks agree") != std::string::npos);
  status.ranks[1].state = "left";
  CHECK(status_line(status).find("4/4 ranks agree") != std::string::npos);
  status.ranks[1].state = "absent";
  CHECK(status_line(status).find("3/4 ranks agree") != std::string::npos);
}

TEST_CASE("what all ranks dropped is added up") {
  Status status = sample_status();
  status.ranks[0].dropped = 5;
  status.ranks[3].dropped = 7;
  CHECK(status_line(status).find(" · 12 dropped") != std::string::npos);
}

TEST_CASE("static mode has no agreement to speak of") {
  Status status = sample_status();
  status.mode = "static";
  CHECK(status_line(status) == "ON since step 1200 · 3 of 5 collections left · static mode · 0 dropped");
}

TEST_CASE("status for people looks like its golden files") {
  const std::string collecting = status_text(sample_status());
  CHECK(golden_difference("status_on.txt", collecting) == "");
  const std::string troubled = status_text(troubled_status());
  CHECK(golden_difference("status_troubled.txt", troubled) == "");
}

}  // namespace
}  // namespace gradmon
