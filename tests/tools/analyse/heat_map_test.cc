// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/heat_map.h"
#include "tests/tools/run_command.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "control/debian_version.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/analyse/rank_writer.h"
#include "tools/analyse/colour_scale.h"
#include "tools/analyse/raster.h"
#include "tools/analyse/run_heat_map.h"
#include "tools/analyse/svg.h"
#include "tools/gradmonctl/cli/console.h"
#include "writers/sinks/tensorboard_sink.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

const double kNan = std::nan("");

float largest(const HeatMap& map) { return *std::max_element(map.cells.begin(), map.cells.end()); }

TEST_CASE("cells show the largest magnitude and steps without rows are left out") {
  HeatMapBuilder builder(10, 10);
  builder.add(0, 3, 1);
  builder.add(0, 3, -5);
  builder.add(1, 8, 2);
  const HeatMap map = builder.build({"a", "b"});
  CHECK(map.rows == std::vector<std::string>{"a", "b"});
  CHECK(map.first_steps == std::vector<std::int64_t>{3, 8});
  CHECK(map.last_step == 8);
  CHECK(map.cell(0, 0) == 5);
  CHECK(map.cell(0, 1) == HeatMap::kMissing);
  CHECK(map.cell(1, 1) == 2);
}

TEST_CASE("a spike and a NaN survive any shrinking in any order of steps") {
  for (const int direction : {1, -1}) {
    HeatMapBuilder builder(4, 8);
    for (int i = 0; i < 5000; ++i) {
      const int step = direction > 0 ? i : 4999 - i;
      for (std::size_t row = 0; row < 10; ++row) builder.add(row, step, row == 7 && step == 1234 ? 1e6 : 1);
    }
    builder.add(2, 4321, kNan);
    builder.add(2, 4321, 9);
    const HeatMap map = builder.build(std::vector<std::string>(10, "x"));
    CHECK(map.rows.size() == 4);
    CHECK(map.columns() <= 8);
    CHECK(map.columns() >= 4);
    std::size_t spikes = 0, nans = 0;
    for (const float cell : map.cells) {
      if (cell == 1e6F) ++spikes;
      if (std::isnan(cell)) ++nans;
    }
    CHECK(spikes == 1);
    CHECK(nans == 1);
  }
}

TEST_CASE("steps may be as large as a step can be") {
  HeatMapBuilder builder(4, 8);
  builder.add(0, std::numeric_limits<std::int64_t>::max(), 2);
  builder.add(0, 0, 1);
  const HeatMap map = builder.build({"a"});
  CHECK(map.columns() == 2);
  CHECK(largest(map) == 2);
}

TEST_CASE("fewer columns keep all values") {
  HeatMapBuilder builder(4, 64);
  for (int step = 0; step < 60; ++step) builder.add(0, step, step);
  builder.limit_columns(4);
  builder.add(1, 100, 7);
  const HeatMap map = builder.build({"a", "b"});
  CHECK(map.columns() <= 4);
  CHECK(largest(map) == 59);
}

TEST_CASE("the scale is logarithmic for a wide range and keeps NaN and infinities apart") {
  HeatMap map;
  map.rows = {"a"};
  map.first_steps = {0, 1, 2, 3};
  map.cells = {1e-3F, 1, 1e3F, std::numeric_limits<float>::infinity()};
  const ColourScale scale(map);
  CHECK(scale.is_logarithmic());
  CHECK(scale.class_of(1e-3F) == 0);
  CHECK(scale.class_of(0) == ColourScale::kZero);
  CHECK(std::abs(static_cast<int>(scale.class_of(1)) - static_cast<int>(ColourScale::kShades / 2)) <= 1);
  CHECK(scale.class_of(1e3F) == ColourScale::kShades - 1);
  CHECK(scale.class_of(map.cells[3]) == ColourScale::kInfinite);
  CHECK(scale.class_of(std::nanf("")) == ColourScale::kNan);
  CHECK(scale.class_of(HeatMap::kMissing) == ColourScale::kMissing);
  map.cells = {1, 2, 3, 4};
  CHECK(!ColourScale(map).is_logarithmic());
}

HeatMap small_map() {
  HeatMapBuilder builder(8, 8);
  builder.add(0, 0, 1);
  builder.add(0, 1, 1000);
  builder.add(1, 1, std::nan(""));
  HeatMap map = builder.build({"layers.0", "\xC3\xA4"});
  map.title = "norm";
  return map;
}

TEST_CASE("cells have their colours in the pixels") {
  const HeatMap map = small_map();
  const ColourScale scale(map);
  const ChartLayout chart = layout_of(map, scale);
  const Raster raster = raster_of(map);
  CHECK(raster.pixels.size() == raster.width * raster.height);
  const auto pixel = [&](std::size_t row, std::size_t column) {
    const std::size_t y = chart.top + row * chart.cell_height + chart.cell_height / 2;
    return raster.pixels[y * raster.width + chart.left + column * chart.cell_width + chart.cell_width / 2];
  };
  CHECK(pixel(0, 0) == 0);
  CHECK(pixel(0, 1) == ColourScale::kShades - 1);
  CHECK(pixel(1, 0) == ColourScale::kMissing);
  CHECK(pixel(1, 1) == ColourScale::kNan);
  CHECK(std::count(raster.pixels.begin(), raster.pixels.end(), ColourScale::kClasses) > 100);  // text
}

TEST_CASE("the PNG has the size and the signature of one") {
  const Raster raster = raster_of(small_map());
  const std::string png = png_of(raster);
  REQUIRE(png.size() > 24);
  CHECK(png.compare(0, 8, "\x89PNG\r\n\x1a\n") == 0);
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(png[at]));
  };
  CHECK((byte(18) << 8) + byte(19) == raster.width);
  CHECK((byte(22) << 8) + byte(23) == raster.height);
  CHECK(png.find("IEND") != std::string::npos);
}

TEST_CASE("a character without a glyph is a question mark") {
  CHECK(glyph_of('\n') == glyph_of('?'));
  CHECK(glyph_of('\xC3') == glyph_of('?'));
  CHECK(glyph_of('A') != glyph_of('?'));
}

HeatMap map_for_svg() {
  HeatMapBuilder builder(8, 8);
  for (int step = 0; step < 5; ++step) {
    builder.add(0, step, step == 3 ? 1000 : 1);
    builder.add(1, step, step >= 3 ? std::nan("") : 2);
  }
  builder.add(2, 1, std::numeric_limits<double>::infinity());
  HeatMap map = builder.build({"layers.0.weight", "layers.1.<weight>", "a & b"});
  map.title = "norm of grad_reduced";
  return map;
}

TEST_CASE("a small heat map matches its golden file") {
  CHECK(golden_difference("heat_map.svg", svg_of(map_for_svg())) == "");
}

TEST_CASE("an empty heat map is a document without cells") {
  const std::string svg = svg_of(HeatMap());
  CHECK(svg.find("<svg") == 0);
  CHECK(svg.find("<path") == std::string::npos);
}

TEST_CASE("a heat map of the largest size stays below four megabytes") {
  HeatMapBuilder builder(256, 512);
  for (std::size_t row = 0; row < 256; ++row) {
    for (int step = 0; step < 512; ++step)
      builder.add(row, step, static_cast<double>(1 + (row * 31 + static_cast<std::size_t>(step) * 17) % 64));
  }
  CHECK(svg_of(builder.build(std::vector<std::string>(256, "layer"))).size() < 4'000'000);
}

HeatMap map_of(const TemporaryDirectory& output, const HeatMapRequest& request) {
  Problems problems;
  const auto map = heat_map_of(*find_run(output.path(), "", problems), request, problems);
  REQUIRE(map);
  return *map;
}

TEST_CASE("a heat map has a row for each layer and the largest value of all ranks") {
  const TemporaryDirectory output;
  for (int rank = 0; rank < 2; ++rank) {
    RankWriter writer(output.path(), rank);
    for (int step = 10; step < 13; ++step)
      writer.write(step, {{Kind::grad_reduced, "a", 1.0 + rank},
                          {Kind::grad_reduced, "b", rank == 1 && step == 11 ? std::nan("") : 5}});
  }
  const HeatMap map = map_of(output, {});
  CHECK(map.title == "norm of grad_reduced, largest of 2 ranks, run 1a2b3c4d");
  CHECK(map.rows == std::vector<std::string>{"a", "b"});
  CHECK(map.first_steps == std::vector<std::int64_t>{10, 11, 12});
  CHECK(map.cell(0, 0) == 2);
  CHECK(std::isnan(map.cell(1, 1)));
  HeatMapRequest one;
  one.rank = 0;
  one.target = "b";
  CHECK(map_of(output, one).cells == std::vector<float>{5, 5, 5});
}

TEST_CASE("a target is a name or a module above it or a pattern") {
  CHECK(is_target("layers.1", "layers.1"));
  CHECK(is_target("layers.1", "layers.1.weight"));
  CHECK(!is_target("layers.1", "layers.10.weight"));
  CHECK(is_target("*.weight", "layers.10.weight"));
  CHECK(is_target("layers.?.w*t", "layers.1.weight"));
  CHECK(!is_target("layers.?.weight", "layers.10.weight"));
  CHECK(is_target("*a*b*", "xaxxb"));
  CHECK(!is_target("*a*b", "xaxxbc"));
  CHECK(is_target("*", ""));
  CHECK(!is_target("?", ""));
}

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

tl::expected<HeatMap, std::string> histogram_map_of(const TemporaryDirectory& output,
                                                    const HeatMapRequest& request) {
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
  const auto map = histogram_map_of(output, request_of("update", "fc1.weight"));
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
  const auto ratio = histogram_map_of(output, one);
  REQUIRE(ratio);
  CHECK(ratio->title == "values of ratio of fc1.weight, rank 1, run 1a2b3c4d");
  CHECK(ratio->cell(29, 0) == 50);
}

TEST_CASE("without one parameter there is no heat map and the message says what there is") {
  const TemporaryDirectory output;
  write_run(output);
  CHECK(histogram_map_of(output, request_of("update", "")).error() ==
        "the histograms of update are of 2 parameters (fc1.bias, fc1.weight): name one with --target");
  CHECK(histogram_map_of(output, request_of("update", "fc1")).error() ==
        "the histograms of update are of 2 parameters (fc1.bias, fc1.weight): name one with --target");
  CHECK(histogram_map_of(output, request_of("update", "fc2")).error() ==
        "no parameter matches --target fc2, of 12 histograms");
  HeatMapRequest absent = request_of("ratio", "fc1.weight");
  absent.rank = 7;
  CHECK(histogram_map_of(output, absent).error() ==
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
