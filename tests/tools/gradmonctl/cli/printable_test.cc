// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/printable.h"
#include "tests/support/catch.h"

namespace gradmon {

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

namespace {

TEST_CASE("three or more consecutive ranks are shown as a range") {
  CHECK(rank_ranges({3}) == "rank 3");
  CHECK(rank_ranges({0, 1}) == "ranks 0, 1");
  CHECK(rank_ranges({0, 1, 2, 3, 7, 9, 10, 11}) == "ranks 0-3, 7, 9-11");
}

TEST_CASE("ranks with the same text share a line in the order of the first rank") {
  CHECK(grouped_by_text({{0, "b"}, {1, "a"}, {2, "b"}}) ==
        std::vector<std::string>{"ranks 0, 2: b", "rank 1: a"});
}

}  // namespace

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

}  // namespace gradmon
