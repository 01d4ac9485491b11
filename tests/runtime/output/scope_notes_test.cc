// SPDX-License-Identifier: Apache-2.0
#include "runtime/output/scope_notes.h"

#include <nlohmann/json.hpp>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

nlohmann::json targets_in(ScopeNotes& notes) {
  const auto text = notes.take_changed();
  REQUIRE(text);
  const auto json = nlohmann::json::parse(*text);
  REQUIRE(json["format"] == 1);
  return json["targets"];
}

WatchedParameter parameter(ParameterPlacement placement = {}) {
  WatchedParameter one;
  one.placement = placement;
  return one;
}

TEST_CASE("a row has the scope of its tensor, else that of its parameter") {
  NameTable names;
  ScopeNotes notes(names, 2);
  const std::uint32_t weight = names.intern("fc.\"weight\"", 1);
  const std::uint32_t split = names.intern("split", 0);
  notes.expect(weight, parameter());
  notes.expect(split, parameter({ParameterPlacement::Part::shard, 1, 4}));
  notes.note(Kind::grad_reduced, weight, make_scope(R"({"scope": "partial"})"));
  notes.count_row(Kind::grad_reduced, weight);
  notes.count_row(Kind::grad_unreduced, weight);
  notes.count_row(Kind::param_origin, weight);
  notes.count_row(Kind::exp_avg, split);
  notes.count_row(Kind::scalar, names.intern("loss", 0));
  notes.count_row(Kind::actv, names.intern("fc.output", 0));
  const auto found = targets_in(notes);
  CHECK(found["1:fc.\"weight\""]["grad_reduced"]["scope"] == "partial");
  CHECK(found["1:fc.\"weight\""]["grad_unreduced"]["scope"] == "whole");
  CHECK(found["1:fc.\"weight\""]["param_origin"]["scope"] == "replica");
  CHECK(found["0:split"]["exp_avg"] == nlohmann::json{{"scope", "shard"}, {"index", 1}, {"count", 4}});
  CHECK(found["0:fc.output"]["actv"]["scope"] == "whole");
  CHECK(found.size() == 3);  // a scalar is of no tensor
}

TEST_CASE("a parameter that differs between the ranks is no replica") {
  NameTable names;
  ScopeNotes notes(names, 2);
  WatchedParameter expert = parameter();
  expert.replicated = false;
  const std::uint32_t target = names.intern("expert", 0);
  notes.expect(target, expert);
  notes.count_row(Kind::grad_reduced, target);
  CHECK(targets_in(notes)["0:expert"]["grad_reduced"]["scope"] == "whole");
}

TEST_CASE("a sharded parameter tells of rows whose tensors do not") {
  NameTable names;
  ScopeNotes notes(names, 0);
  ParameterSharding sharding;
  sharding.unreduced_scope = make_scope(R"({"scope": "whole"})");
  sharding.scope = make_scope(R"({"scope": "piece"})");
  WatchedParameter one = parameter();
  one.sharding = std::make_shared<const ParameterSharding>(sharding);
  const std::uint32_t target = names.intern("w", 0);
  notes.expect(target, one);
  notes.count_row(Kind::other, target);
  notes.count_row(Kind::grad_unreduced, target);
  const auto found = targets_in(notes);
  CHECK(found["0:w"]["other"]["scope"] == "piece");
  CHECK(found["0:w"]["grad_unreduced"]["scope"] == "whole");
}

TEST_CASE("the file is written again only when something is new") {
  NameTable names;
  ScopeNotes notes(names, 0);
  CHECK_FALSE(notes.take_changed());
  const std::uint32_t target = names.intern("w", 0);
  for (int step = 0; step < 2; ++step) {
    notes.note(Kind::grad_reduced, target, make_scope(R"({"scope": "shard"})"));  // equal, another object
    CHECK(notes.take_changed().has_value() == (step == 0));
  }
  notes.note(Kind::grad_reduced, target, make_scope(R"({"scope": "partial"})"));
  CHECK(targets_in(notes)["0:w"]["grad_reduced"]["scope"] == "partial");
}

TEST_CASE("the sinks know the scope of a row before the row is written") {
  NameTable names;
  ScopeNotes notes(names, 2);
  const std::uint32_t target = names.intern("w", 0);
  notes.expect(target, parameter());
  notes.count_row(Kind::grad_reduced, target);
  CHECK(names.name(notes.table()->of(Kind::grad_reduced, target)) == R"({"scope": "replica"})");
  const std::uint32_t version = notes.table()->version();
  notes.count_row(Kind::grad_reduced, target);
  CHECK(notes.table()->version() == version);
  notes.note(Kind::grad_reduced, target, make_scope(R"({"scope": "partial"})"));
  CHECK(notes.table()->version() > version);
  CHECK(names.name(notes.table()->of(Kind::grad_reduced, target)) == R"({"scope": "partial"})");
  CHECK(notes.table()->of(Kind::scalar, target) == 0);
}

}  // namespace
}  // namespace gradmon
