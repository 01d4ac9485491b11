// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/conversion_progress.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {

TEST_CASE("progress shows share, rows, rate and the time left") {
  CHECK(progress_text(0, 0, 1000, 0) == "0 %, 0 rows");
  CHECK(progress_text(500, 5, 1000, 2) == "0 %, 500 rows, 250 rows/s");
  CHECK(progress_text(3'000'000, 250, 1000, 10) == "25 %, 3000000 rows, 300000 rows/s, 30 s left");
  CHECK(progress_text(40, 2000, 1000, 4) == "100 %, 40 rows, 10 rows/s, 0 s left");  // a file that grew
  CHECK(progress_text(0, 0, 0, 1) == "100 %, 0 rows, 0 rows/s, 0 s left");
}

}  // namespace gradmon
