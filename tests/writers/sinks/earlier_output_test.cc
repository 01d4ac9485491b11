// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/earlier_output.h"

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "writers/sink_table.h"

using namespace gradmon;

namespace {

ResumedSamples after(const SamplesByStep& earlier, std::int64_t first_step) {
  return ResumedSamples(Step{first_step}, [earlier](Step) { return earlier; });
}

}  // namespace

TEST_CASE("a step of the earlier job keeps its number and later steps continue from it") {
  ResumedSamples samples = after({{8, 90}, {9, 100}, {10, 110}, {11, 120}}, 10);
  CHECK(samples.at(Step{10}, 7) == 110);
  CHECK(samples.at(Step{11}, 14) == 120);
  CHECK(samples.at(Step{12}, 21) == 127);
  CHECK(samples.at(Step{20}, 77) == 183);
}

TEST_CASE("without a step of both jobs the number continues from the last one before this job") {
  CHECK(after({{4, 50}, {9, 100}, {11, 120}}, 10).at(Step{12}, 30) == 130);
  CHECK(after({{4, 50}, {9, 100}}, 10).at(Step{10}, 10) == 110);
  CHECK(after({{11, 120}}, 10).at(Step{12}, 30) == 30);
  CHECK(after({}, 10).at(Step{12}, 30) == 30);
}

TEST_CASE("a program that has counted the samples of the earlier job in its first step is left alone") {
  ResumedSamples samples = after({{9, 100}}, 10);
  samples.count_first(100);
  samples.count_first(10);
  CHECK(samples.at(Step{10}, 110) == 110);
  ResumedSamples same_batch = after({{0, 10}}, 1);
  same_batch.count_first(10);
  CHECK(same_batch.at(Step{1}, 10) == 20);
}

TEST_CASE("rows have no number of samples while the earlier ones cannot be read") {
  int calls = 0;
  ResumedSamples samples(Step{10}, [&](Step from) -> tl::expected<SamplesByStep, std::string> {
    CHECK(from == Step{10});
    if (++calls < 2) return tl::unexpected(std::string("no disk"));
    return SamplesByStep{{9, 100}};
  });
  std::vector<Record> both(2);
  for (Record& row : both) {
    row.step = 10;
    row.kind = Kind::scalar;
    row.values = {10, 0.5};
    row.mask = static_cast<ValueMask>(bit_of(Column::samples) | bit_of(Column::value));
  }
  both.front().kind = Kind::grad_reduced;
  RecordBatch rows = both, again = both;
  samples.amend(rows);
  CHECK(rows[0].mask == again[0].mask);
  CHECK(rows[1].mask == bit_of(Column::value));
  CHECK(samples.problem() == "the number of samples of the earlier job cannot be read: no disk");
  samples.amend(again);
  CHECK(again[0].values[0] == 10);
  CHECK(again[1].values[0] == 110);
  CHECK(again[1].mask == (bit_of(Column::samples) | bit_of(Column::value)));
  CHECK(samples.problem().empty());
  CHECK(calls == 2);
}

TEST_CASE("numbers of samples are read from whole rows of CSV files back to one before the first step") {
  const TemporaryDirectory output;
  const auto directory = output / "Dec03_21-34-40-rank1-1a2b3c4d";
  std::filesystem::create_directory(directory);
  const std::string header = "name,step,samples,value\n";
  write_text(directory / "scalar_0-9.csv", header + "\"a,b\",3,30,1.0\nloss,4,,1.0\n");
  write_text(directory / "scalar_10-19.csv", header + "loss,11,110,1.0\nloss,12,120,");
  write_text(directory / "grad_reduced_0-9.csv", "name,step,samples\nw,3,7\n");
  CHECK(*find_samples(directory, Step{11}) == SamplesByStep{{3, 30}, {11, 110}});
  CHECK(*find_samples(directory, Step{12}) == SamplesByStep{{11, 110}});
  const auto other = [&](const char* name) { return *find_samples(output / name, Step{12}); };
  CHECK(other("Dec03_21-34-40-rank0-1a2b3c4d") == SamplesByStep{{11, 110}});
  CHECK(other("Dec03_21-34-40-rank0-00000000").empty());
  CHECK(other("Dec04_21-34-40-rank0-1a2b3c4d").empty());
}
