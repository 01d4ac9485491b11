// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/run/line_prefixer.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

using gradmon::LinePrefixer;

TEST_CASE("a line is returned with its rank once it is complete") {
  LinePrefixer lines(17);
  CHECK(lines.feed("lo").empty());
  CHECK(lines.feed("ss 1\nloss 2\n\nlo") == "[17] loss 1\n[17] loss 2\n[17] \n");
  CHECK(lines.feed("ss 3\n") == "[17] loss 3\n");
}

TEST_CASE("a last line without a line feed gets one") {
  LinePrefixer lines(0);
  CHECK(lines.feed("a\nb") == "[0] a\n");
  CHECK(lines.finish() == "[0] b\n");
  CHECK(lines.finish().empty());
}

TEST_CASE("an overlong line is cut") {
  LinePrefixer lines(1);
  const std::string longest(LinePrefixer::kLongestLine, 'x');
  CHECK(lines.feed(longest + "yz") == "[1] " + longest + "\n");
  CHECK(lines.finish() == "[1] yz\n");
}
