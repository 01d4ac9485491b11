// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/step_buffer.h"

#include <string>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

namespace {

Record record(std::uint64_t revision, std::int64_t step, Kind kind, std::uint64_t sequence) {
  Record made;
  made.revision = revision;
  made.step = step;
  made.kind = kind;
  made.sequence = sequence;
  return made;
}

std::string order(const std::vector<Record>& records) {
  std::string text;
  for (const Record& r : records) text += std::string(name_of(r.kind)) + std::to_string(r.sequence) + " ";
  return text;
}

}  // namespace

TEST_CASE("a closed step is sorted by kind and then sequence") {
  StepBuffer steps;
  steps.add({record(1, 5, Kind::param_origin, 1), record(1, 5, Kind::grad_reduced, 9)});
  steps.add({record(1, 5, Kind::param_origin, 0), record(1, 5, Kind::grad_reduced, 2)});
  CHECK(steps.count(Revision{1}, Step{5}) == 4);
  CHECK(order(steps.close(Revision{1}, Step{5})) ==
        "grad_reduced2 grad_reduced9 param_origin0 param_origin1 ");
  CHECK(steps.held() == 0);
  CHECK(steps.lost() == 0);
}

TEST_CASE("records of the next step are kept until its own end") {
  StepBuffer steps;
  steps.add({record(1, 6, Kind::actv, 0), record(1, 5, Kind::actv, 0), record(2, 7, Kind::actv, 3)});
  CHECK(order(steps.close(Revision{1}, Step{5})) == "actv0 ");
  CHECK(steps.held() == 2);
  CHECK(order(steps.close(Revision{1}, Step{6})) == "actv0 ");
  CHECK(order(steps.close(Revision{2}, Step{7})) == "actv3 ");
}

TEST_CASE("a record that arrives after its step was closed is counted as lost") {
  StepBuffer steps;
  steps.add({record(1, 5, Kind::actv, 0)});
  steps.close(Revision{1}, Step{5});
  steps.add({record(1, 5, Kind::actv, 1), record(1, 4, Kind::actv, 0)});
  CHECK(steps.lost() == 2);
  CHECK(steps.held() == 0);
}

TEST_CASE("a step that never ended is lost when a later one ends") {
  StepBuffer steps;
  steps.add({record(1, 5, Kind::actv, 0), record(1, 5, Kind::actv, 1), record(2, 6, Kind::actv, 0)});
  CHECK(order(steps.close(Revision{2}, Step{6})) == "actv0 ");
  CHECK(steps.lost() == 2);
  CHECK(steps.held() == 0);
}

TEST_CASE("clearing counts the held records as lost") {
  StepBuffer steps;
  steps.add({record(1, 5, Kind::actv, 0)});
  steps.clear();
  CHECK(steps.lost() == 1);
  CHECK(steps.held() == 0);
}
