// SPDX-License-Identifier: Apache-2.0
// The event files and the CSV files of one run hold the same numbers.
#include <fstream>
#include <map>
#include <sstream>

#include "control/debian_version.h"
#include "tests/support/split_csv.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/sinks/tensorboard/event_reader.h"
#include "tests/writers/sinks/tensorboard/sample_run.h"
#include "writers/sink_table.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;

using Numbers = std::map<std::string, float>;  // by "TAG STEP"

// The numbers in a CSV file under their tags in event files.
void add_csv(const fs::path& file, Numbers& numbers) {
  std::ifstream lines(file);
  std::string line;
  std::getline(lines, line);
  const auto titles = split_csv(line);
  const std::string name = file.filename().string();
  const std::string prefix = name.substr(0, name.find_last_of('_'));
  while (std::getline(lines, line)) {
    std::map<std::string, std::string> row;
    const auto cells = split_csv(line);
    for (std::size_t i = 0; i < titles.size(); ++i) row[titles[i]] = cells.at(i);
    if (prefix == "scalar") {
      numbers[row["name"] + " " + row["step"]] = std::stof(row["value"]);
      numbers[row["name"] + "-vs-samples " + row["samples"]] = std::stof(row["value"]);
      continue;
    }
    const bool micro = row.count("micro_step") > 0;
    const std::string stage = row["vpp_stage"] == "0" ? "" : row["vpp_stage"] + ":";
    const std::string place = "/" + stage + row["name"] + (micro ? ":micro" + row["micro_step"] : "");
    for (const auto& [title, cell] : row) {
      const bool is_number = title != "vpp_stage" && title != "name" && title != "step" &&
                             title != "micro_step" && title != "shape" && title != "dtype";
      if (is_number && !cell.empty())
        numbers[prefix + "_" + title + place + " " + row["step"]] = static_cast<float>(std::stod(cell));
    }
  }
}

}  // namespace

TEST_CASE("event files and CSV files hold the same numbers of every kind") {
  const TemporaryDirectory scratch;
  const SampleRun run;
  for (std::uint64_t revision = 1; revision <= 2; ++revision) {
    const SinkContext context{[&] { return scratch.path(); }, run.names(), nullptr, Rank{2},
                              run.config(revision)};
    const Layout layout = run.layout(revision);
    for (const char* const format : {"csv", "tensorboard"}) {
      const auto sink = make_sink(format, context);
      REQUIRE(sink->begin_revision(layout));
      const auto first = static_cast<std::int64_t>(revision - 1) * SampleRun::kStepsOfARevision;
      for (std::int64_t step = first; step < first + SampleRun::kStepsOfARevision; ++step)
        REQUIRE(sink->write_step(Step{step}, run.rows(step)));
    }
  }
  Numbers csv;
  for (const auto& entry : fs::directory_iterator(scratch.path()))
    if (entry.path().extension() == ".csv") add_csv(entry.path(), csv);
  const auto points = points_in(scratch.path() / "tensorboard");
  CHECK(points.size() == csv.size());
  CHECK(csv.size() > 900);
  for (const Point& point : points) {
    const auto found = csv.find(point.tag + " " + std::to_string(point.step));
    CAPTURE(point);
    REQUIRE(found != csv.end());
    REQUIRE(Point{point.tag, point.step, found->second} == point);
  }
}

}  // namespace gradmon
