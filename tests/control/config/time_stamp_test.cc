// SPDX-License-Identifier: Apache-2.0
#include "control/config/time_stamp.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {

TEST_CASE("a time stamp is what names of run directories begin with") {
  CHECK(seconds_of("Jan01_00-00-00") == 0);
  CHECK(seconds_of("Jan02_01-02-03") == 86'400 + 3'723);
  CHECK(*seconds_of("Dec03_21-34-40") > *seconds_of("Nov30_21-34-40"));
  for (const char* text :
       {"", "Dec03", "Dez03_21-34-40", "Dec32_21-34-40", "Dec00_21-34-40", "Dec03_24-34-40", "Dec03_21-34-4x",
        "Dec03 21-34-40", "Dec03_21-34-400", "dec03_21-34-40"})
    CHECK_FALSE(seconds_of(text));
}

}  // namespace gradmon
