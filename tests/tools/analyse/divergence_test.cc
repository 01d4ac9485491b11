// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/divergence.h"

#include <cmath>
#include <functional>
#include <limits>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/analyse/rank_writer.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Value = std::function<double(int rank, int step)>;

void write_run(const std::filesystem::path& output, int steps, const Value& second_weight) {
  for (int rank = 0; rank < 3; ++rank) {
    RankWriter writer(output, rank);
    for (int step = 0; step < steps; ++step)
      writer.write(step, {{Kind::grad_unreduced, "w0", 1.0},
                          {Kind::grad_unreduced, "w1", second_weight(rank, step)},
                          {Kind::grad_reduced, "w0", 1.0},
                          {Kind::grad_reduced, "w1", second_weight(rank, step)}});
  }
}

// A file of rank 0.
void write_file(const std::filesystem::path& output, const char* name, const char* text) {
  const auto directory = output / "Nov24_12-04-37-rank0-1a2b3c4d";
  std::filesystem::create_directory(directory);
  write_text(directory / name, text);
}

struct Runs {
  TemporaryDirectory a;
  TemporaryDirectory b;

  Divergence compare(const Tolerance& tolerance = {}) const {
    Problems problems;
    const auto run_a = find_run(a.path(), "", problems);
    const auto run_b = find_run(b.path(), "", problems);
    REQUIRE(run_a);
    REQUIRE(run_b);
    Divergence found = find_divergence(*run_a, *run_b, tolerance, problems);
    CHECK(problems.count() == 0);
    return found;
  }
};

TEST_CASE("two runs that part at a known place are found to part there and how they go on") {
  const Runs runs;
  write_run(runs.a.path(), 10, [](int, int) { return 1.0; });
  write_run(runs.b.path(), 10,
            [](int rank, int step) { return step >= 6 || (rank == 2 && step == 5) ? 1.0 + step : 1.0; });
  const Divergence found = runs.compare();
  REQUIRE(found.first);
  CHECK(found.first->order.step == 5);
  CHECK(found.first->rank == 2);
  CHECK(found.first->kind == Kind::grad_unreduced);
  CHECK(found.first->layer == "w1");
  CHECK(found.first->field == field_of(Op::norm));
  CHECK(found.first->a == 1);
  CHECK(found.first->b == 6);
  CHECK(found.first->line == 3);
  CHECK(found.first->file.filename() == "grad_unreduced_5-5.csv");
  CHECK(found.by_rank.at(0).order.step == 6);
  CHECK(found.compared == 3 * 10 * 4);
  CHECK(found.steps.at(4).parted == 0);
  CHECK(found.steps.at(5).parted == 2);
  CHECK(found.steps.at(6).parted == 6);
  CHECK(std::abs(found.steps.at(9).worst->difference - 0.9) < 1e-9);
  CHECK(found.only_a.rows == 0);
}

TEST_CASE("equal runs do not part and rounding within the tolerance is no parting") {
  const Runs runs;
  write_run(runs.a.path(), 3, [](int, int) { return 1.0; });
  write_run(runs.b.path(), 3, [](int, int) { return 1.000001; });
  CHECK(!runs.compare().first);
  CHECK(runs.compare({0, 0}).first);
}

TEST_CASE("rows that only one run has are counted with the first of them") {
  const Runs runs;
  write_run(runs.a.path(), 5, [](int, int) { return 1.0; });
  write_run(runs.b.path(), 3, [](int, int) { return 1.0; });
  RankWriter(runs.b.path(), 7).write(1, {{Kind::actv, "extra", 1}});
  const Divergence found = runs.compare();
  CHECK(!found.first);
  CHECK(found.only_a.rows == 2 * 3 * 4);
  CHECK(found.only_a.step == 3);
  CHECK(found.only_b.rows == 1);
  CHECK(found.only_b.what == "actv of \"extra\" on rank 7");
}

TEST_CASE("scalars of the clock are not compared and others are") {
  const Runs runs;
  write_file(runs.a.path(), "scalar_0-0.csv", "name,step,samples,value\niteration-time,0,,1\nloss,0,,2\n");
  write_file(runs.b.path(), "scalar_0-0.csv", "name,step,samples,value\niteration-time,0,,3\nloss,0,,4\n");
  const Divergence found = runs.compare();
  REQUIRE(found.first);
  CHECK(found.first->layer == "loss");
  CHECK(found.compared == 1);
}

TEST_CASE("rows with no statistic in common are counted and not called equal") {
  const Runs runs;
  write_file(runs.a.path(), "grad_reduced_0-0.csv", "name,step,norm\nw,0,1\n");
  write_file(runs.b.path(), "grad_reduced_0-0.csv", "name,step,max\nw,0,1\n");
  const Divergence found = runs.compare();
  CHECK(found.compared == 0);
  CHECK(found.without_common == 1);
}

TEST_CASE("rows are matched by name whatever their order") {
  const Runs runs;
  RankWriter(runs.a.path(), 0).write(0, {{Kind::actv, "a", 1}, {Kind::actv, "b", 2}, {Kind::actv, "b", 3}});
  RankWriter(runs.b.path(), 0).write(0, {{Kind::actv, "b", 2}, {Kind::actv, "b", 3}, {Kind::actv, "a", 1}});
  const Divergence found = runs.compare();
  CHECK(!found.first);
  CHECK(found.compared == 3);
}

TEST_CASE("differences are relative to the larger value and NaN equals NaN") {
  const double nan = std::nan("");
  const double inf = std::numeric_limits<double>::infinity();
  const double most = std::numeric_limits<double>::max();
  CHECK(relative_difference(1, 2) == 0.5);
  CHECK(relative_difference(-1, 1) == 2);
  CHECK(relative_difference(0, 0) == 0);
  CHECK(relative_difference(nan, nan) == 0);
  CHECK(relative_difference(inf, inf) == 0);
  CHECK(std::isinf(relative_difference(nan, 1)));
  CHECK(relative_difference(-most, most) == 2);
  CHECK(parts(nan, 1, {}));
  CHECK(parts(inf, -inf, {}));
  CHECK(!parts(1e-9, 2e-9, {}));
  CHECK(parts(1e-9, 2e-9, {1e-5, 0}));
}

}  // namespace
}  // namespace gradmon
