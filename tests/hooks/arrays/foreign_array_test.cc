// SPDX-License-Identifier: Apache-2.0
#include "hooks/arrays/foreign_array.h"

#include <cstdint>
#include <limits>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST_CASE("the memory of an array reaches from its lowest to its highest element") {
  const float values[24] = {};
  const auto* bytes = reinterpret_cast<const unsigned char*>(values);
  ForeignArray array{values + 12, ElementType::float32, {2, 3}, {-24, 8}};
  auto memory = memory_of(array);
  REQUIRE(memory);
  CHECK(memory->begin == bytes + 48 - 24);
  CHECK(memory->bytes == 24 + 16 + 4);

  array.strides = {0, 0};
  memory = memory_of(array);
  REQUIRE(memory);
  CHECK(memory->begin == bytes + 48);
  CHECK(memory->bytes == 4);

  array.sizes = array.strides = {};
  REQUIRE(memory_of(array));
  CHECK(memory_of(array)->bytes == 4);
}

TEST_CASE("an array without elements needs no memory") {
  const ForeignArray array{nullptr, ElementType::float64, {3, 0}, {kMost, -8}};
  REQUIRE(memory_of(array));
  CHECK(memory_of(array)->bytes == 0);
}

TEST_CASE("sizes and strides that no memory has are refused") {
  const double value = 0;
  const auto refused = [&](std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides) {
    return !memory_of({&value, ElementType::float64, std::move(sizes), std::move(strides)});
  };
  CHECK(refused({-1}, {8}));
  CHECK(refused({2}, {}));
  CHECK(refused({kMost}, {8}));
  CHECK(refused({kMost, kMost}, {0, 0}));
  CHECK(refused({2, 2}, {kMost, kMost}));
  CHECK(refused({2}, {std::numeric_limits<std::int64_t>::min()}));
  CHECK(refused({3}, {std::numeric_limits<std::int64_t>::min() + 1}));
  CHECK(refused({std::int64_t{1} << 29U}, {0}));  // would be read for minutes
  CHECK(refused(std::vector<std::int64_t>(65, 1), std::vector<std::int64_t>(65, 8)));
  CHECK(!memory_of({nullptr, ElementType::float64, {1}, {8}}));
}

TEST_CASE("types are found by name") {
  CHECK(element_type_of("bfloat16") == ElementType::bfloat16);
  CHECK(element_type_of("float8_e5m2fnuz") == ElementType::float8_e5m2fnuz);
  CHECK(!element_type_of("float128"));
  CHECK(!element_type_of(""));
}

}  // namespace
}  // namespace gradmon
