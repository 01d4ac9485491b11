// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/config/line_diff.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("equal texts have no difference") {
  CHECK(line_diff("", "").empty());
  CHECK(line_diff("{\n}\n", "{\n}\n").empty());
}

TEST_CASE("only the different lines are shown under the line number of the old text") {
  CHECK(line_diff("{\n  \"a\": 1,\n  \"b\": 2\n}\n", "{\n  \"a\": 5,\n  \"b\": 2\n}\n") ==
        "line 2:\n-   \"a\": 1,\n+   \"a\": 5,\n");
  CHECK(line_diff("a\nb\nc\nd\ne\n", "a\nB\nc\nd\nE\nF\n") == "line 2:\n- b\n+ B\nline 5:\n- e\n+ E\n+ F\n");
}

TEST_CASE("added lines and removed lines are shown alone") {
  CHECK(line_diff("{\n}\n", "{\n  \"a\": 1\n}\n") == "line 2:\n+   \"a\": 1\n");
  CHECK(line_diff("a\nb\nb\nc\n", "a\nb\nc\n") == "line 3:\n- b\n");
  CHECK(line_diff("", "a") == "line 1:\n+ a\n");
  CHECK(line_diff("a", "") == "line 1:\n- a\n");
}

TEST_CASE("line endings and control characters do not reach the terminal") {
  CHECK(line_diff("a\r\n", "\x1b[2J\r\n") == "line 1:\n- a\n+ \\x1b[2J\n");
}

TEST_CASE("very long texts without a common line are shown as one run") {
  std::string before;
  std::string after;
  for (int i = 0; i < 3000; ++i) {
    before += "a" + std::to_string(i) + "\n";
    after += "b" + std::to_string(i) + "\n";
  }
  const std::string text = line_diff(before, after);
  CHECK(text.find("line 1:\n- a0\n- a1\n") == 0);
  CHECK(text.find("- a2999\n+ b0\n") != std::string::npos);
}

}  // namespace
}  // namespace gradmon
