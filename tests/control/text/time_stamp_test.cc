// SPDX-License-Identifier: Apache-2.0
#include "control/text/time_stamp.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {

TEST_CASE("a time stamp is what names of run directories begin with") {
  CHECK(seconds_in_year("Jan01_00-00-00") == 0);
  CHECK(seconds_in_year("Jan02_01-02-03") == 86'400 + 3'723);
  CHECK(*seconds_in_year("Dec01_00-00-00") - *seconds_in_year("Nov30_23-59-59") == 1);
  CHECK(*seconds_in_year("Mar01_00-00-00") - *seconds_in_year("Feb29_00-00-00") == 86'400);
  CHECK(*seconds_in_year("Dec31_23-59-59") == kSecondsInLeapYear - 1);
  for (const char* text :
       {"", "Dec03", "Dez03_21-34-40", "Dec32_21-34-40", "Dec00_21-34-40", "Dec03_24-34-40", "Dec03_21-34-4x",
        "Dec03 21-34-40", "Dec03_21-34-400", "Dec003_2-34-40", "dec03_21-34-40"})
    CHECK_FALSE(seconds_in_year(text));
}

TEST_CASE("the time stamp of a time is read as it was written") {
  const std::time_t time = 1'790'000'000;
  std::tm local{};
  localtime_r(&time, &local);
  const auto seconds = seconds_in_year(time_stamp_of(time));
  REQUIRE(seconds);
  CHECK(*seconds % 60 == local.tm_sec);
  CHECK(*seconds / 60 % 60 == local.tm_min);
  CHECK(*seconds / 3'600 % 24 == local.tm_hour);
}

}  // namespace gradmon
