// SPDX-License-Identifier: Apache-2.0
// Checks the recipes of CONTRIBUTING.md: an existing example of each recipe is named in exactly the
// files that the recipe lists.
#include <regex>
#include <set>
#include <sstream>

#include "control/debian_version.h"
#include "tests/layout/source_tree.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Files = std::set<std::string>;

// The first path of each numbered line below a title.
Files files_of_recipe(const std::string& title) {
  const std::string page = read_file(GRADMON_SOURCE_DIR "/CONTRIBUTING.md");
  const std::size_t begin = page.find("### " + title);
  REQUIRE(begin != std::string::npos);
  std::istringstream lines(page.substr(begin, page.find("\n#", begin) - begin));
  const std::regex numbered(R"(^\d+\. `([^`]+)`.*)");
  Files files;
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, match, numbered)) files.insert(match.str(1));
  }
  return files;
}

// The files outside tests/ that contain `word`.
Files files_that_name(const std::string& word) {
  const std::regex whole("\\b" + word + "\\b");
  Files files;
  for (const auto& [path, text] : read_tree(GRADMON_SOURCE_DIR)) {
    if (!lies_in(path, "tests") && text.find(word) != std::string::npos && std::regex_search(text, whole))
      files.insert(path);
  }
  return files;
}

TEST_CASE("a statistic takes the files of its recipe and at most five") {
  const Files files = files_of_recipe("A statistic of a tensor");
  CHECK(files.size() <= 5);
  CHECK(files_that_name("absmax") == files);
}

TEST_CASE("a command of gradmonctl takes the files of its recipe and at most two") {
  const Files files = files_of_recipe("A command of gradmonctl");
  CHECK(files.size() <= 2);
  CHECK(files_that_name("schema_subcommand") == files);
}

TEST_CASE("a field of status takes the files of its recipe and at most three") {
  const Files files = files_of_recipe("A field of `gradmonctl status`");
  CHECK(files.size() <= 3);
  CHECK(files_that_name("last_stepped_ms") == files);
}

TEST_CASE("a sink takes the files of its recipe and at most four") {
  const Files files = files_of_recipe("A sink");
  CHECK(files.size() <= 4);
  Files named = files_that_name("memory_sink");
  named.merge(files_that_name("MemorySink"));
  CHECK(named == files);
}

}  // namespace
}  // namespace gradmon
