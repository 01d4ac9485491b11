// SPDX-License-Identifier: Apache-2.0
#include "tests/layout/words.h"

#include "tests/layout/seeded_tree.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using Lines = std::vector<std::string>;

// The source folders, and the pages in the root.
SourceTree whole_tree() {
  SourceTree tree = read_tree(GRADMON_SOURCE_DIR);
  for (const char* page : {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "LICENSE", "CMakeLists.txt"})
    tree[page] = read_file(std::string(GRADMON_SOURCE_DIR "/") + page);
  return tree;
}

TEST_CASE("no phrase of words.txt is in this repository") {
  const auto phrases = parse_phrases(read_file(GRADMON_SOURCE_DIR "/tests/layout/words.txt"));
  REQUIRE(phrases.size() > 8);
  for (const auto& line : phrase_violations(whole_tree(), phrases)) FAIL_CHECK(line);
}

TEST_CASE("every page that is cited is in this repository") {
  for (const auto& line : missing_pages(whole_tree())) FAIL_CHECK(line);
}

TEST_CASE("a phrase is found also across the lines of a comment") {
  const Lines phrases = parse_phrases("# a comment\n\nread it twice\n");
  CHECK(phrase_violations({{"a.cc", "int x;  // Must Read\n// it\n//   twice.\n"}}, phrases) ==
        Lines{"a.cc:1: \"read it twice\" is a phrase of words.txt"});
  CHECK(phrase_violations({{"a.cc", "log(\"read \"\n    \"it twice\");\n"}}, phrases).size() == 1);
}

TEST_CASE("a link to a missing page and the name of a missing page are reported") {
  const SourceTree tree{{"docs/A.md", "[b](B.md) [c](../x/c.h#part) [d](../x) [e](https://e.org/f.md)\n"},
                        {"x/c.h", "// See A.md and FORMAT.md.\n"}};
  CHECK(missing_pages(tree) == Lines{"docs/A.md:1: cites B.md, which is not in this repository",
                                     "x/c.h:1: cites FORMAT.md, which is not in this repository"});
}

}  // namespace
}  // namespace gradmon
