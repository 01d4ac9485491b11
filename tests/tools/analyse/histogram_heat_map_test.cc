// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/histogram_heat_map.h"

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/analyse/run_command.h"
#include "tools/gradmonctl/cli/console.h"
#include "writers/sinks/tensorboard/tensorboard_sink.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// Writes the event files of one rank as a job does.
class HistogramWriter {
 public:
  HistogramWriter(const TemporaryDirectory& output, int rank)
      : directory_(output / ("Nov24_12-04-37-rank" + std::to_string(rank) + "-1a2b3c4d")),
        sink_({[this] { return directory_; }, names_, Rank{rank}, "{}"}) {
    REQUIRE(sink_.begin_revision(Layout{}));
  }

  void write(std::int64_t step, const std::string& name, Kind kind, std::size_t bin, std::uint64_t count) {
    Histogram histogram;
    histogram.step = step;
    histogram.target = names_->intern(name);
    histogram.kind = kind;
    histogram.counts[bin] = count;
    REQUIRE(sink_.write_histograms(Step{step}, {histogram}));
  }

 private:
  const std::filesystem::path directory_;
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();
  TensorBoardSink sink_;
};

void write_run(const TemporaryDirectory& output) {
  for (int rank = 0; rank < 2; ++rank) {
    HistogramWriter writer(output, rank);
    for (std::int64_t step = 5; step < 8; ++step) {
      writer.write(step, "fc1.weight", Kind::update, 29, static_cast<std::uint64_t>(step + rank));
      writer.write(step, "fc1.bias", Kind::update, 3, 1000);
      writer.write(step, "fc1.weight", Kind::ratio, 0, 50);
    }
  }
}

tl::expected<HeatMap, std::string> map_of(const TemporaryDirectory& output, const HeatMapRequest& request) {
  Problems problems;
  auto map = histogram_heat_map_of(*find_run(output.path(), "", problems), request, problems);
  CHECK(problems.count() == 0);
  return map;
}

HeatMapRequest request_of(const std::string& kind, const std::string& target) {
  HeatMapRequest request;
  request.kind = kind;
  request.target = target;
  return request;
}

TEST_CASE("a histogram's heat map has the bin of 1 at the top and the largest count of all ranks") {
  const TemporaryDirectory output;
  write_run(output);
  const auto map = map_of(output, request_of("update", "fc1.weight"));
  REQUIRE(map);
  CHECK(map->title == "values of update of fc1.weight, largest of 2 ranks, run 1a2b3c4d");
  REQUIRE(map->rows.size() == kBins);
  CHECK(map->rows.front() == "0.93 to 1.00");
  CHECK(map->rows[14] == "0.00 to 0.07");
  CHECK(map->rows.back() == "-1.00 to -0.93");
  CHECK(map->first_steps == std::vector<std::int64_t>{5, 6, 7});
  CHECK(map->cell(0, 0) == 6);
  CHECK(map->cell(0, 2) == 8);
  CHECK(map->cell(1, 0) == 0);
  HeatMapRequest one = request_of("ratio", "*.weight");
  one.rank = 1;
  const auto ratio = map_of(output, one);
  REQUIRE(ratio);
  CHECK(ratio->title == "values of ratio of fc1.weight, rank 1, run 1a2b3c4d");
  CHECK(ratio->cell(29, 0) == 50);
}

TEST_CASE("without one parameter there is no heat map and the message says what there is") {
  const TemporaryDirectory output;
  write_run(output);
  CHECK(map_of(output, request_of("update", "")).error() ==
        "the histograms of update are of 2 parameters (fc1.bias, fc1.weight): name one with --target");
  CHECK(map_of(output, request_of("update", "fc1")).error() ==
        "the histograms of update are of 2 parameters (fc1.bias, fc1.weight): name one with --target");
  CHECK(map_of(output, request_of("update", "fc2")).error() ==
        "no parameter matches --target fc2, of 12 histograms");
  HeatMapRequest absent = request_of("ratio", "fc1.weight");
  absent.rank = 7;
  CHECK(map_of(output, absent).error() ==
        "there are no histograms of ratio; \"ur_distribution\": true with \"format\": \"tensorboard\" makes "
        "them");
}

TEST_CASE("plot draws a histogram's heat map as a picture of either form") {
  const TemporaryDirectory output;
  write_run(output);
  for (const char* name : {"update.svg", "update.png"}) {
    const std::string file = output / name;
    const CommandResult result = run_analyse(
        {"plot", output.path(), "-o", file, "--metric", "update", "--target", "fc1.weight", "--json"});
    CHECK(result.err.empty());
    CHECK(result.code == kExitDone);
    CHECK(result.out.find("\"rows\": 30") != std::string::npos);
    CHECK(read_text(file).find(name[7] == 's' ? "0.93 to 1.00" : "PNG") != std::string::npos);
  }
  CHECK(run_analyse({"plot", output.path(), "-o", "x.svg", "--metric", "update"}).code == kExitFailed);
  const CommandResult with_op =
      run_analyse({"plot", output.path(), "-o", "x.svg", "--metric", "ratio", "--op", "norm"});
  CHECK(with_op.code == kExitUsage);
  CHECK(with_op.err.find("--op norm: ratio is a histogram and has no statistics") != std::string::npos);
}

}  // namespace
}  // namespace gradmon
