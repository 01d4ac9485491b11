// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/step_rows.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

Record named_record() {
  Record record;
  record.target = 1;
  return record;
}

void push(StepRows& rows, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) rows.push(named_record());
}

TEST_CASE("rows that were taken are gone from the step and count as waiting until nobody holds them") {
  StepRows rows(std::make_shared<NameTable>());
  push(rows, 3);
  auto taken = rows.take();
  REQUIRE(taken);
  CHECK(taken->rows.size() == 3);
  CHECK(rows.size() == 0);
  push(rows, StepRows::kMostWaiting - 2);
  CHECK(rows.take() == nullptr);
  *taken = {};  // they have been looked at, and still wait for a file
  CHECK(rows.take() == nullptr);
  CHECK(rows.size() == static_cast<std::size_t>(StepRows::kMostWaiting) - 2);
  taken.reset();
  CHECK(rows.take() != nullptr);
}

TEST_CASE("a row whose name has no room in the table is left out") {
  StepRows rows(std::make_shared<NameTable>(NameTable::Bound{1, 64}));
  REQUIRE(rows.target_id(0, "w") == 0);
  rows.push(Record{});
  CHECK(rows.size() == 0);
}

class LateTens : public LateValues {
 public:
  bool ready() noexcept override { return true; }
  bool complete(Record& record) noexcept override {
    record.mask = 0;
    record.values[0] *= 10;
    return record.values[0] != 20;
  }
};

TEST_CASE("rows whose values come late are completed once, where they are looked at") {
  StepRows rows(std::make_shared<NameTable>());
  rows.take_late(std::make_shared<LateTens>());
  for (const double value : {1.0, 2.0, 3.0}) {
    Record record = named_record();
    record.mask = kLate;
    record.values[0] = value;
    rows.push(record);
  }
  rows.push(named_record());
  const auto taken = rows.take();
  REQUIRE(taken);
  CHECK(taken->rows.size() == 4);
  for (int time = 0; time < 2; ++time) {
    const std::vector<Record>& completed = taken->completed();
    REQUIRE(completed.size() == 3);
    CHECK(completed[0].values[0] == 10);
    CHECK(completed[1].values[0] == 30);
    CHECK(completed[2].values[0] == 0);
  }
  rows.push(named_record());
  CHECK(rows.take()->late == nullptr);
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
