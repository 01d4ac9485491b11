// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/display_width.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

using gradmon::cut_to_width;
using gradmon::display_width;

TEST_CASE("wide characters take two columns and combining ones none") {
  CHECK(display_width("") == 0);
  CHECK(display_width("Größe 权重 · …") == 14);
  CHECK(display_width("e\xCC\x81") == 1);
  CHECK(display_width("\xF0\x9F\x98\x80") == 2);
}

TEST_CASE("a line is cut to its display width and never within a character") {
  CHECK(cut_to_width("abc", 3) == "abc");
  CHECK(cut_to_width("abcd", 3) == "ab…");
  CHECK(cut_to_width("权重权重", 5) == "权重…");
  CHECK(cut_to_width("权重权重", 4) == "权…");
  CHECK(cut_to_width("e\xCC\x81xyz", 2) == "e\xCC\x81…");
  CHECK(cut_to_width("abc", 1) == "…");
  CHECK(cut_to_width("abc", 0).empty());
}
