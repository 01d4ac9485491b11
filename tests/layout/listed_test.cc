// SPDX-License-Identifier: Apache-2.0
#include "tests/layout/listed.h"

#include "tests/layout/seeded_tree.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using Lines = std::vector<std::string>;

std::vector<TestBinary> test_binaries() {
  return read_binaries(read_file(GRADMON_BUILD_DIR "/test_binaries.txt"), GRADMON_SOURCE_DIR);
}

TestBinary built(const std::string& name, const Lines& sources, const Lines& cases) {
  return {name, sources, TestBinary::State::built, cases, name};
}

}  // namespace

#if GRADMON_ALL_TESTS
TEST_CASE("every test file of this repository is in the build", "[listed]") {
  const auto tree = read_tree(GRADMON_SOURCE_DIR, {"tests"});
  CHECK(tree.count("tests/layout/listed_test.cc") == 1);
  for (const auto& line : unbuilt_tests(tree, test_binaries())) FAIL_CHECK(line);
}
#endif

TEST_CASE("ctest runs every test case of this build and none that does not exist", "[listed]") {
  const auto entries = read_ctest_entries(GRADMON_CTEST, GRADMON_BUILD_DIR);
  CHECK(entries.size() > 1);
  for (const auto& line : unlisted_cases(with_cases(test_binaries()), entries)) FAIL_CHECK(line);
}

TEST_CASE("a test file in no binary is reported", "[listed]") {
  const SeededTree seeded(
      {{"tests/hooks/a_test.cc", ""}, {"tests/hooks/b_test.cc", ""}, {"tests/hooks/c.cc", ""}});
  const auto tree = read_tree(seeded.root());
  CHECK(unbuilt_tests(tree, {built("hooks_tests", {"tests/hooks/a_test.cc", "tests/hooks/b_test.cc"}, {})})
            .empty());
  CHECK(unbuilt_tests(tree, {built("hooks_tests", {"tests/hooks/a_test.cc"}, {})}) ==
        Lines{"tests/hooks/b_test.cc: is in no gradmon_test()"});
}

TEST_CASE("a test case that ctest does not run is reported", "[listed]") {
  const auto binary = built("a", {}, {"one", "two: three"});
  CHECK(unlisted_cases({binary}, {"a: one", "a: two: three", "script"}).empty());
  CHECK(unlisted_cases({binary}, {"a: one"}) == Lines{"a: two: three: is not run by ctest"});
  CHECK(unlisted_cases({binary}, {"a: all cases"}).empty());
  CHECK(unlisted_cases({binary}, {"b: all cases"}).size() == 2);
}

TEST_CASE("a ctest entry that is no test case is reported", "[listed]") {
  CHECK(unlisted_cases({built("a", {}, {"one"})}, {"a: one", "a: on", "a: e"}) ==
        Lines{"a: e: ctest runs it, but it is no test case", "a: on: ctest runs it, but it is no test case"});
}

TEST_CASE("a binary that is not built or has no test case is reported", "[listed]") {
  CHECK(unlisted_cases({{"a", {}, TestBinary::State::missing, {}, "a"}, built("b", {}, {})},
                       {"a_NOT_BUILT-123"}) == Lines{"a: is not built", "b: has no test case"});
}

TEST_CASE("the cases of an executable are those that it lists", "[listed]") {
  const SeededTree seeded(SourceTree{{"tests/a_tests", "#!/bin/sh\nprintf 'one\\ntwo words\\n'\nexit 2\n"}});
  const auto executable = seeded.root() / "tests/a_tests";
  std::filesystem::permissions(executable, std::filesystem::perms::owner_all);
  const auto folder = (seeded.root() / "tests").string();
  const auto binaries =
      with_cases(read_binaries("a;" + executable.string() + ";" + folder + ";a_test.cc;sub/b_test.cc\n" +
                                   "b;" + folder + "/b_tests;" + folder + ";c_test.cc\n",
                               seeded.root()));
  REQUIRE(binaries.size() == 2);
  CHECK(binaries[0].cases == Lines{"one", "two words"});
  CHECK(binaries[0].sources == Lines{"tests/a_test.cc", "tests/sub/b_test.cc"});
  CHECK(binaries[1].state == TestBinary::State::missing);
}

}  // namespace gradmon
