// SPDX-License-Identifier: Apache-2.0
#include "tests/support/outcome.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using Steps = std::set<std::int64_t>;

HistoryEntry committed_plan(std::int64_t step, std::int64_t times) {
  HistoryEntry entry;
  entry.revision = Revision{1};
  entry.verdict = "commit";
  entry.on = true;
  entry.effective_step = step;
  entry.steps = Schedule(Step{step}, 1, times);
  return entry;
}

Steps agreed(const std::vector<HistoryEntry>& commits, const std::map<int, RowsByStep>& rows) {
  return steps_agreed(commits, last_known_step(commits, rows));
}

TEST_CASE("the agreed steps of a finished plan do not depend on rows") {
  HistoryEntry finished = committed_plan(10, 4);
  finished.finished_step = 13;
  CHECK(agreed({finished}, {{0, {{10, 1}, {11, 1}}}, {1, {{10, 1}, {11, 1}}}}) == Steps{10, 11, 12, 13});
}

TEST_CASE("without rows only the first step of an unfinished plan is agreed") {
  CHECK(agreed({committed_plan(10, 4)}, {{0, {}}, {1, {}}}) == Steps{10});
}

TEST_CASE("the agreed steps of an unfinished plan end with the last step that has rows") {
  CHECK(agreed({committed_plan(10, 4)}, {{0, {{10, 1}, {11, 1}}}}) == Steps{10, 11});
}

}  // namespace
}  // namespace gradmon
