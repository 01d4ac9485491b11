// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/abandoned_output.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

TEST_CASE("abandoned rows and files are listed by kind") {
  AbandonedOutput abandoned_output;
  CHECK(to_string(abandoned_output) == "0 rows");
  abandoned_output.files = 1;
  abandoned_output.queued = 1;
  CHECK(to_string(abandoned_output) == "1 row (1 of unknown kind) and 1 other file");
  abandoned_output.rows[static_cast<std::size_t>(Kind::grad_reduced)] = 10;
  abandoned_output.files = 2;
  CHECK(abandoned_output.all_rows() == 11);
  CHECK(to_string(abandoned_output) == "11 rows (10 of grad_reduced, 1 of unknown kind) and 2 other files");
}
