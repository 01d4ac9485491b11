// SPDX-License-Identifier: Apache-2.0
#include "control/host/json_field.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("a field of the wanted type is read") {
  const auto json =
      nlohmann::json::parse(R"({"text": "a", "least": -9223372036854775808, "most": 9223372036854775807,)"
                            R"("all": 18446744073709551615})");
  CHECK(field<std::string>(json, "text") == "a");
  CHECK(field<std::int64_t>(json, "least") == std::numeric_limits<std::int64_t>::min());
  CHECK(field<std::int64_t>(json, "most") == std::numeric_limits<std::int64_t>::max());
  CHECK(field<std::uint64_t>(json, "most") == 9223372036854775807U);
  CHECK(field<std::uint64_t>(json, "all") == std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("a field that is missing or of another type reads as the empty value") {
  const auto json = nlohmann::json::parse(R"({"text": "a", "number": 1, "real": 1.5, "yes": true})");
  CHECK(field<std::string>(json, "missing").empty());
  CHECK(field<std::string>(json, "number").empty());
  CHECK(field<std::int64_t>(json, "text") == 0);
  CHECK(field<std::int64_t>(json, "real") == 0);
  CHECK(field<std::uint64_t>(json, "yes") == 0);
}

TEST_CASE("an integer outside the range of its field reads as 0") {
  const auto json = nlohmann::json::parse(R"({"negative": -1, "over": 9223372036854775808})");
  CHECK(field<std::uint64_t>(json, "negative") == 0);
  CHECK(field<std::int64_t>(json, "over") == 0);
  CHECK(field<std::uint64_t>(nlohmann::json{{"made", -1}}, "made") == 0);
  CHECK(field<std::uint64_t>(nlohmann::json{{"made", 1}}, "made") == 1);
}

}  // namespace
}  // namespace gradmon
