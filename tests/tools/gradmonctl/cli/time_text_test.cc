// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/time_text.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

using gradmon::span_text;
using gradmon::utc_text;

TEST_CASE("a time is shown in UTC and 0 as an empty text") {
  CHECK(utc_text(1'783'341'296'789) == "2026-07-06 12:34:56 UTC");
  CHECK(utc_text(0).empty());
}

TEST_CASE("a span is shown in ms or s or min or h by its length") {
  CHECK(span_text(0) == "0 ms");
  CHECK(span_text(999) == "999 ms");
  CHECK(span_text(1550) == "1.5 s");
  CHECK(span_text(90'000) == "90 s");
  CHECK(span_text(600'000) == "10 min");
  CHECK(span_text(36'000'000) == "10 h");
}
