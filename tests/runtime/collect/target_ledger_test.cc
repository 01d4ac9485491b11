// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/target_ledger.h"

#include <algorithm>

#include "tests/support/catch.h"

namespace gradmon {
namespace {

struct Fixture {
  NameTable names;
  TargetLedger ledger{names};
  std::uint32_t weight = names.intern("fc1.weight");
  std::uint32_t bias = names.intern("fc1.bias", 1);

  Fixture() {
    ledger.expect({{Kind::grad_reduced, weight, "no gradient"}, {Kind::grad_reduced, bias, "frozen"}},
                  {{"fc9", {"fc1"}, ""}});
  }
};

TEST_CASE("before the first collected step nothing has fired and nothing is silent") {
  const Fixture f;
  const TargetList list = f.ledger.list();
  REQUIRE(list.targets.size() == 2);
  REQUIRE(list.targets[0].kind == "grad_reduced");
  REQUIRE(list.targets[0].name == "fc1.weight");
  REQUIRE(list.targets[1].name == "1:fc1.bias");
  REQUIRE(list.targets[0].last_step == -1);
  REQUIRE(list.targets[0].why.empty());
  REQUIRE(list.counts.silent == 0);
  REQUIRE(list.counts.unmatched == 1);
  REQUIRE(list.unmatched[0].nearest == std::vector<std::string>{"fc1"});
}

TEST_CASE("a target has the step in which it last fired and the number of silent steps since") {
  Fixture f;
  f.ledger.count_row(Kind::grad_reduced, f.weight);
  f.ledger.end_step(Step{10}, 1000);
  f.ledger.end_step(Step{15}, 2000);
  f.ledger.end_step(Step{20}, 3000);
  const TargetList list = f.ledger.list();
  REQUIRE(list.targets[0].last_step == 10);
  REQUIRE(list.targets[0].last_at == 1000);
  REQUIRE(list.targets[0].silent_steps == 2);
  REQUIRE(list.targets[0].why == "no gradient");
  REQUIRE(list.targets[1].last_step == -1);
  REQUIRE(list.targets[1].silent_steps == 3);
  REQUIRE(list.targets[1].why == "frozen");
  f.ledger.count_row(Kind::grad_reduced, f.weight);
  f.ledger.end_step(Step{25}, 4000);
  REQUIRE_FALSE(f.ledger.list().targets[0].silent());
  REQUIRE(f.ledger.list().targets[0].why.empty());
}

TEST_CASE("the rows of a step that was dropped do not count in the next step") {
  Fixture f;
  f.ledger.count_row(Kind::grad_reduced, f.weight);
  f.ledger.drop_step();
  f.ledger.end_step(Step{11}, 1000);
  REQUIRE(f.ledger.list().targets[0].last_step == -1);
}

TEST_CASE("a row that was not expected is listed too") {
  Fixture f;
  f.ledger.count_row(Kind::actv, f.bias);
  f.ledger.count_row(Kind::actv, f.bias);
  f.ledger.end_step(Step{10}, 1000);
  const TargetList list = f.ledger.list();
  REQUIRE(list.targets.size() == 3);
  REQUIRE(list.targets[2].kind == "actv");
  REQUIRE(list.targets[2].last_step == 10);
}

TEST_CASE("the counts are those of the list") {
  Fixture f;
  for (std::int64_t step = 0; step < 6; ++step) {
    const TargetList list = f.ledger.list();
    const TargetCounts counts = f.ledger.counts();
    CAPTURE(step);
    REQUIRE(counts.watched == static_cast<std::int64_t>(list.targets.size()));
    REQUIRE(counts.silent == std::count_if(list.targets.begin(), list.targets.end(),
                                           [](const TargetStatus& target) { return target.silent(); }));
    REQUIRE(counts.unmatched == static_cast<std::int64_t>(list.unmatched.size()));
    REQUIRE(list.counts.silent == counts.silent);
    if (step % 2 == 0) f.ledger.count_row(Kind::grad_reduced, f.weight);
    if (step == 3) f.ledger.count_row(Kind::actv, f.bias);
    f.ledger.end_step(Step{step}, 1000);
  }
}

TEST_CASE("a module is expected until one of its rows has come") {
  NameTable names;
  TargetLedger ledger{names};
  const auto fc1 = names.intern("fc1", 1);
  const auto other_chunk = names.intern("fc1");
  const auto of = ExpectedTarget::Of::module;
  ledger.expect({{Kind::actv, fc1, "unseen", of}, {Kind::actv_grad, fc1, "no graph", of}}, {});
  ledger.count_row(Kind::actv, names.intern("fc1.sub.input", 1));
  ledger.count_row(Kind::actv, names.intern("fc1.output"));
  ledger.end_step(Step{10}, 1000);
  REQUIRE(ledger.counts().silent == 2);
  REQUIRE(ledger.list().targets[0].why == "unseen");
  for (const char* row : {"fc1.input_x.y", "fc1.output"}) {
    ledger.count_row(Kind::actv, names.intern(row, 1));
    ledger.count_row(Kind::actv, other_chunk);
  }
  ledger.end_step(Step{11}, 1000);
  const TargetList list = ledger.list();
  REQUIRE(list.targets[0].kind == "actv_grad");
  REQUIRE(list.targets[0].name == "1:fc1");
  REQUIRE(list.targets[0].silent_steps == 2);
  REQUIRE(ledger.counts().watched == 6);
  REQUIRE(ledger.counts().silent == 3);
}

TEST_CASE("a target that is expected again keeps the step in which it last fired") {
  Fixture f;
  f.ledger.count_row(Kind::grad_reduced, f.weight);
  f.ledger.end_step(Step{10}, 1000);
  const ExpectedTarget again{Kind::grad_reduced, f.weight, "no gradient"};
  f.ledger.expect({again, again}, {});
  REQUIRE(f.ledger.counts().watched == 1);
  REQUIRE(f.ledger.list().targets.size() == 1);
  REQUIRE(f.ledger.list().targets[0].last_step == 10);
}

TEST_CASE("a silent target or module has the reason of the last step") {
  Fixture f;
  const std::uint32_t block = f.names.intern("block");
  f.ledger.expect({{Kind::grad_reduced, f.weight, "no gradient"},
                   {Kind::actv, block, "not seen", ExpectedTarget::Of::module}},
                  {});
  f.ledger.note_reason(Kind::grad_reduced, f.weight, "it is nested");
  f.ledger.note_reason(Kind::actv, f.names.intern("block.output"), "it is nested");
  f.ledger.end_step(Step{1}, 1000);
  CHECK(f.ledger.list().targets[0].why == "it is nested");
  CHECK(f.ledger.list().targets[1].why == "block.output: it is nested");
  f.ledger.count_row(Kind::grad_reduced, f.weight);
  f.ledger.note_reason(Kind::grad_reduced, f.weight, "of one micro batch");
  f.ledger.end_step(Step{2}, 2000);
  CHECK(f.ledger.list().targets[0].why.empty());
  CHECK(f.ledger.list().targets[1].why == "not seen");
  f.ledger.end_step(Step{3}, 3000);
  CHECK(f.ledger.list().targets[0].why == "no gradient");
}

TEST_CASE("another plan begins with an empty ledger") {
  Fixture f;
  f.ledger.count_row(Kind::grad_reduced, f.weight);
  f.ledger.end_step(Step{10}, 1000);
  f.ledger.count_row(Kind::grad_reduced, f.weight);
  f.ledger.begin_plan();
  f.ledger.end_step(Step{11}, 1000);
  REQUIRE(f.ledger.list().targets.empty());
  REQUIRE(f.ledger.counts().watched == 0);
}

}  // namespace
}  // namespace gradmon
