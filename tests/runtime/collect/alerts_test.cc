// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/alerts.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

struct Reader {
  std::shared_ptr<NameTable> names = std::make_shared<NameTable>();
  std::vector<ReplicaStep> steps;
  ReplicaRowReader reader{
      {9, 2}, 1e-5, names, [this](ReplicaStep step) { steps.push_back(std::move(step)); }};

  Record record(Kind kind, const std::string& name, double norm) {
    Record made;
    made.revision = 4;
    made.kind = kind;
    made.target = names->intern(name, 1);
    made.mask = static_cast<ValueMask>(bit_of(Op::norm) | bit_of(Op::min));
    made.values[static_cast<std::size_t>(Op::norm)] = norm;
    made.values[static_cast<std::size_t>(Op::min)] = -norm;
    made.values[static_cast<std::size_t>(Op::max)] = 1e9;  // not in the mask
    return made;
  }
};

TEST_CASE(
    "reduced gradients and weights are compared, in the statistics of the config, and other rows are not") {
  Reader rank;
  rank.reader.on_records(
      Step{7}, {rank.record(Kind::actv, "fc1", 1), rank.record(Kind::grad_unreduced, "fc1", 2),
                rank.record(Kind::grad_reduced, "fc1", 3), rank.record(Kind::grad_reduced, "fc2", 4),
                rank.record(Kind::exp_avg, "fc1", 5), rank.record(Kind::param_origin, "fc1", 6),
                rank.record(Kind::param_updated, "fc1", 7)});
  REQUIRE(rank.steps.size() == 1);
  CHECK(rank.steps[0].group.id == 9);
  CHECK(rank.steps[0].threshold == 1e-5);
  REQUIRE(rank.steps[0].kinds.size() == 3);
  const ReplicaRows& gradients = rank.steps[0].kinds[0];
  CHECK(gradients.kind == Kind::grad_reduced);
  CHECK(gradients.revision == Revision{4});
  CHECK(gradients.step == 7);
  CHECK(gradients.values == std::vector<double>{-3, 3, -4, 4});
  REQUIRE(gradients.targets->size() == 2);
  CHECK((*gradients.targets)[1].name == "fc2");
  CHECK((*gradients.targets)[1].vpp_stage == 1);
  CHECK(rank.steps[0].kinds[2].values == std::vector<double>{-7, 7});
}

TEST_CASE("a step without a row to compare tells nothing") {
  Reader rank;
  rank.reader.on_records(Step{1}, {});
  rank.reader.on_records(Step{2}, {rank.record(Kind::actv, "fc1", 1)});
  CHECK(rank.steps.empty());
}

TEST_CASE("steps with the same rows share their targets, and a change of the rows changes the targets") {
  Reader rank;
  for (int step = 0; step < 2; ++step)
    rank.reader.on_records(Step{step}, {rank.record(Kind::grad_reduced, "a", 1)});
  rank.reader.on_records(Step{2}, {rank.record(Kind::grad_reduced, "b", 1)});
  REQUIRE(rank.steps.size() == 3);
  CHECK(rank.steps[0].kinds[0].targets == rank.steps[1].kinds[0].targets);
  CHECK((*rank.steps[2].kinds[0].targets)[0].name == "b");
}

TEST_CASE("targets that are left out are not compared") {
  Reader rank;
  rank.reader.leave_out({rank.names->intern("expert", 1)});
  rank.reader.on_records(
      Step{1}, {rank.record(Kind::grad_reduced, "expert", 1), rank.record(Kind::grad_reduced, "fc1", 2)});
  REQUIRE(rank.steps.size() == 1);
  CHECK(rank.steps[0].kinds[0].values == std::vector<double>{-2, 2});
}

TEST_CASE("the rule of a config is found by its name") {
  Config config;
  CHECK_FALSE(find_divergence_rule(config));
  config.alert.rules = {{Anomaly::nan, {}}, {Anomaly::rank_divergence, 0.5}};
  CHECK(find_divergence_rule(config)->threshold == 0.5);
}

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
