// SPDX-License-Identifier: Apache-2.0
#include "tests/layout/words.h"

#include "control/debian_version.h"
#include "tests/layout/seeded_tree.h"
#include GRADMON_CATCH_HEADER

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

TEST_CASE("no word of words.txt is in this repository") {
  const auto words = parse_words(read_file(GRADMON_SOURCE_DIR "/tests/layout/words.txt"));
  REQUIRE(words.names.size() > 30);
  REQUIRE(words.phrases.size() > 8);
  for (const auto& line : word_violations(whole_tree(), words)) FAIL_CHECK(line);
}

TEST_CASE("every page that is cited is in this repository") {
  for (const auto& line : missing_pages(whole_tree())) FAIL_CHECK(line);
}

TEST_CASE("a name is found as a whole word and a phrase also across the lines of a comment") {
  const WordList words =
      parse_words("# a comment\nname FrontDoor  # ConnectionLimiter\nphrase read it twice\n");
  CHECK(word_violations({{"a.h", "class FrontDoors {};\nFrontDoor door;\n"}}, words) ==
        Lines{"a.h:2: \"FrontDoor\" is a name of words.txt"});
  CHECK(word_violations({{"a.cc", "int x;  // Must Read\n// it\n//   twice.\n"}}, words) ==
        Lines{"a.cc:1: \"read it twice\" is a phrase of words.txt"});
  CHECK(word_violations({{"a.cc", "log(\"read \"\n    \"it twice\");\n"}}, words).size() == 1);
}

TEST_CASE("a link to a missing page and the name of a missing page are reported") {
  const SourceTree tree{{"docs/A.md", "[b](B.md) [c](../x/c.h#part) [d](../x) [e](https://e.org/f.md)\n"},
                        {"x/c.h", "// See A.md and FORMAT.md.\n"}};
  CHECK(missing_pages(tree) == Lines{"docs/A.md:1: cites B.md, which is not in this repository",
                                     "x/c.h:1: cites FORMAT.md, which is not in this repository"});
}

TEST_CASE("a line of words.txt without a name or a phrase is refused") {
  CHECK_THROWS_AS(parse_words("word x\n"), std::runtime_error);
  CHECK_THROWS_AS(parse_words("name\n"), std::runtime_error);
}

}  // namespace
}  // namespace gradmon
