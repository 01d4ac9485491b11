// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/printable.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

using gradmon::printable;
using gradmon::printable_lines;

TEST_CASE("visible characters of any script stay unchanged") {
  CHECK(printable("layers.1 · Größe 权重 \xF0\x9F\x98\x80 \\") ==
        "layers.1 · Größe 权重 \xF0\x9F\x98\x80 \\");
}

TEST_CASE("characters that move the cursor or reorder text are escaped") {
  CHECK(printable("a\x1b[2Jb\n\t\r\x7f") == "a\\x1b[2Jb\\n\\t\\r\\x7f");
  CHECK(printable(std::string_view("\0", 1)) == "\\x00");
  CHECK(printable("\xC2\x9B") == "\\xc2\\x9b");           // CSI in one character
  CHECK(printable("\xE2\x80\xAE") == "\\xe2\\x80\\xae");  // right to left
  CHECK(printable("\xD8\x9C") == "\\xd8\\x9c");           // Arabic letter mark
}

TEST_CASE("invisible characters are escaped") {
  CHECK(printable("a\xE2\x80\x8B"
                  "b") ==
        "a\\xe2\\x80\\x8b"
        "b");                                             // zero width space
  CHECK(printable("\xEF\xBB\xBF") == "\\xef\\xbb\\xbf");  // byte order mark
}

TEST_CASE("nonempty lines are joined by the separator") {
  CHECK(printable_lines("a:1: one\nb:2: two\x1b\n", "; ") == "a:1: one; b:2: two\\x1b");
  CHECK(printable_lines("one\n\ntwo", "\n  ") == "one\n  two");
  CHECK(printable_lines("", "; ").empty());
}

TEST_CASE("bytes that are not UTF-8 are escaped") {
  CHECK(printable("\xff") == "\\xff");
  CHECK(printable("\xC0\x80") == "\\xc0\\x80");
  CHECK(printable("\xED\xA0\x80") == "\\xed\\xa0\\x80");  // a surrogate
  CHECK(printable("\xE2\x82") == "\\xe2\\x82");           // cut short
  CHECK(printable("\xF4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
}
