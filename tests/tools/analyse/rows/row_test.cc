// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/row.h"

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/analyse/rank_writer.h"
#include "tools/analyse/rows/row_file.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

std::vector<std::int64_t> steps_of(const std::vector<KindFile>& files, Problems& problems) {
  std::vector<std::int64_t> steps;
  KindRows rows(files, problems);
  for (const Row* row = rows.next(); row != nullptr; row = rows.next()) steps.push_back(row->step);
  return steps;
}

using Steps = std::vector<std::int64_t>;

TEST_CASE("rows of all files come by step also where revisions have files of their own") {
  const TemporaryDirectory output;
  RankWriter writer(output.path(), 0);
  Layout layout = writer.layout();
  layout.step_count_per_record = 10;
  const auto write = [&](std::uint64_t revision, std::vector<Op> ops, const Steps& steps) {
    layout.revision = Revision{revision};
    layout.ops = std::move(ops);
    writer.begin(layout);
    for (const std::int64_t step : steps) writer.write(step, {{Kind::grad_reduced, "w"}});
  };
  write(1, {Op::norm}, {1, 2});
  write(2, {Op::norm, Op::nans}, {3, 4, 11});
  write(3, {Op::norm}, {12});
  layout.step_count_per_record = 100;
  write(4, {Op::norm}, {13, 14});
  Problems problems;
  const auto files = kind_files_in(writer.directory(), problems);
  REQUIRE(files.at(Kind::grad_reduced).size() == 5);
  CHECK(steps_of(files.at(Kind::grad_reduced), problems) == Steps{1, 2, 3, 4, 11, 12, 13, 14});
  CHECK(problems.count() == 0);
  CHECK(files_of_steps(files.at(Kind::grad_reduced), 5, 9).size() == 3);
}

TEST_CASE("many files of the same steps are read with few open at a time") {
  const TemporaryDirectory output;
  const auto directory = output / "Nov24_12-04-37-rank0-1a2b3c4d";
  std::filesystem::create_directory(directory);
  for (int revision = 1; revision <= 200; ++revision)
    write_text(directory / ("actv_0-0.r" + std::to_string(revision) + ".csv"), "name,step,norm\na,0,1.0\n");
  Problems problems;
  CHECK(steps_of(kind_files_in(directory, problems).at(Kind::actv), problems).size() == 200);
}

TEST_CASE("a name has the same number again whatever the order") {
  NameIndex names;
  CHECK(names.id_of(0, "a") == 0U);
  CHECK(names.id_of(0, "b") == 1U);
  CHECK(names.id_of(1, "a") == 2U);
  CHECK(names.id_of(0, "b") == 1U);
  CHECK(names.id_of(0, "a") == 0U);
  CHECK(names.id_of(0, "b") == 1U);
  CHECK(names.label(2) == "1:a");
  CHECK(!names.id_of(0, std::string(NameIndex::kMaxBytes, 'x')));
}

}  // namespace

}  // namespace gradmon
