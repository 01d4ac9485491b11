// SPDX-License-Identifier: Apache-2.0
#include "control/text/json_depth.h"

#include <string>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("the depth of a JSON text is that of its brackets outside of strings") {
  CHECK_FALSE(is_nested_deeper("", 0));
  CHECK_FALSE(is_nested_deeper("7", 0));
  CHECK(is_nested_deeper("[]", 0));
  CHECK_FALSE(is_nested_deeper(R"({"a": [1], "b": [2]})", 2));
  CHECK(is_nested_deeper(R"({"a": [1, {}]})", 2));
  CHECK_FALSE(is_nested_deeper(R"(["[[[[", "\"[[[[", "\\", []])", 2));
  CHECK(is_nested_deeper(R"(["\\", [[]]])", 2));
}

TEST_CASE("a torn text is as deep as far as it goes") {
  CHECK(is_nested_deeper(std::string(200'000, '[')));
  CHECK_FALSE(is_nested_deeper(std::string(kMostJsonDepth, '[')));
  CHECK_FALSE(is_nested_deeper("{\"a\": \"[[[[\\", 1));
}

}  // namespace
}  // namespace gradmon
