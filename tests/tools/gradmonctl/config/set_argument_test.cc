// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/config/set_argument.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Edit = std::pair<std::string, std::string>;

TEST_CASE("a value that is JSON stays unchanged") {
  CHECK(*parse_set_argument("collect_times=5") == Edit{"collect_times", "5"});
  CHECK(*parse_set_argument("dynamic_on=true") == Edit{"dynamic_on", "true"});
  CHECK(*parse_set_argument("ops=[\"min\", \"max\"]") == Edit{"ops", "[\"min\", \"max\"]"});
  CHECK(*parse_set_argument("/alert/dump=null") == Edit{"/alert/dump", "null"});
  CHECK(*parse_set_argument("format=\"csv\"") == Edit{"format", "\"csv\""});
}

TEST_CASE("a value that is not JSON becomes a string") {
  CHECK(*parse_set_argument("format=csv") == Edit{"format", "\"csv\""});
  CHECK(*parse_set_argument("eps=NaN") == Edit{"eps", "\"NaN\""});
  CHECK(*parse_set_argument("format=") == Edit{"format", "\"\""});
  CHECK(*parse_set_argument("x=say \"hi\"") == Edit{"x", "\"say \\\"hi\\\"\""});
  CHECK(*parse_set_argument("x=True") == Edit{"x", "\"True\""});
  CHECK(*parse_set_argument("x=007") == Edit{"x", "\"007\""});
}

TEST_CASE("the key ends at the first equals sign") {
  CHECK(*parse_set_argument("x=a=b") == Edit{"x", "\"a=b\""});
}

TEST_CASE("a key with a dot is refused and the error suggests a JSON pointer") {
  const auto refused = parse_set_argument("cc_distribution.enable=true");
  REQUIRE(!refused);
  CHECK(refused.error() ==
        "no key has a dot: \"cc_distribution.enable\"; a key within another is written "
        "/cc_distribution/enable");
  CHECK(parse_set_argument("/targets/blocks.0={}"));
}

TEST_CASE("an argument that is not KEY=VALUE is refused") {
  CHECK(!parse_set_argument("collect_times"));
  CHECK(!parse_set_argument("=5"));
  CHECK(!parse_set_argument(""));
  CHECK(!parse_set_argument("x=\xff"));
}

}  // namespace
}  // namespace gradmon
