// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/given_up.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

TEST_CASE("what was given up is told by kind") {
  GivenUp given_up;
  CHECK(to_string(given_up) == "0 rows");
  given_up.files = 1;
  given_up.queued = 1;
  CHECK(to_string(given_up) == "1 row (1 of unknown kind) and 1 other file");
  given_up.rows[static_cast<std::size_t>(Kind::grad_reduced)] = 10;
  given_up.files = 2;
  CHECK(given_up.all_rows() == 11);
  CHECK(to_string(given_up) == "11 rows (10 of grad_reduced, 1 of unknown kind) and 2 other files");
}
