// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/step_rows.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

void push(StepRows& rows, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) rows.push(Record{});
}

TEST_CASE("rows that were taken are gone from the step and count as waiting until nobody holds them") {
  StepRows rows(std::make_shared<NameTable>());
  push(rows, 3);
  auto taken = rows.take();
  REQUIRE(taken);
  CHECK(taken->size() == 3);
  CHECK(rows.size() == 0);
  push(rows, StepRows::kMostWaiting - 2);
  CHECK(rows.take() == nullptr);
  *taken = {};  // they have been looked at, and still wait for a file
  CHECK(rows.take() == nullptr);
  CHECK(rows.size() == static_cast<std::size_t>(StepRows::kMostWaiting) - 2);
  taken.reset();
  CHECK(rows.take() != nullptr);
}

TEST_CASE("a step with more rows than may wait is taken if no rows wait") {
  StepRows rows(std::make_shared<NameTable>());
  push(rows, StepRows::kMostWaiting + 1);
  const auto taken = rows.take();
  REQUIRE(taken);
  push(rows, 1);
  CHECK(rows.take() == nullptr);
}

}  // namespace
}  // namespace gradmon
