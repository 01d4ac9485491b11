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

TEST_CASE("tensors that were read in part are not compared") {
  Reader rank;
  Record sampled = rank.record(Kind::param_origin, "large", 1);
  sampled.mask = static_cast<ValueMask>(sampled.mask | kSampleMarks);
  rank.reader.on_records(Step{1}, {sampled, rank.record(Kind::param_origin, "fc1", 2)});
  rank.reader.on_records(Step{2}, {sampled});
  REQUIRE(rank.steps.size() == 1);
  CHECK(rank.steps[0].kinds[0].values == std::vector<double>{-2, 2});
}

TEST_CASE("the rule of a config is found by its name") {
  Config config;
  CHECK_FALSE(find_divergence_rule(config));
  config.alert.rules = {{Anomaly::nan, {}}, {Anomaly::rank_divergence, 0.5}};
  CHECK(find_divergence_rule(config)->threshold == 0.5);
}

}  // namespace
}  // namespace gradmon
