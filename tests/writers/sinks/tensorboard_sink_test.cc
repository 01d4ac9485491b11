// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/tensorboard_sink.h"

#include <fstream>
#include <map>

#include "tests/support/catch.h"
#include "tests/support/resource_limit.h"
#include "tests/support/split_csv.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/sample_records.h"
#include "tests/writers/sinks/event_reader.h"
#include "tests/writers/sinks/sample_run.h"
#include "tests/writers/small_disk.h"
#include "writers/queue/writer_thread.h"
#include "writers/sink_table.h"

namespace gradmon {
namespace {

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

struct Fixture {
  fs::path events() const { return scratch.path() / "tensorboard"; }
  TensorBoardSink::Settings settings(const std::string& config = "",
                                     std::uint64_t most_bytes = EventFiles::kBytesOfAFile) const {
    return {[this] { return scratch.path(); }, names, Rank{0}, config, most_bytes};
  }

  const TemporaryDirectory scratch;
  const std::shared_ptr<NameTable> names = std::make_shared<NameTable>();
};

Layout norms(std::uint64_t revision = 1) {
  Layout layout;
  layout.revision = Revision{revision};
  return layout;
}

Record norm_record(std::int64_t step, double norm) {
  Record record = plain_record(step, 0);
  record.values[static_cast<std::size_t>(Op::norm)] = norm;
  return record;
}

std::vector<Record> norm_records(std::int64_t step, int count) {
  std::vector<Record> records;
  for (int i = 0; i < count; ++i) records.push_back(norm_record(step, i));
  return records;
}

constexpr const char* kNormTag = "grad_reduced_norm/";

TEST_CASE("event files are in a directory of their own and begin with the version and the config") {
  const Fixture f;
  for (const std::uint64_t revision : {4U, 7U}) {
    TensorBoardSink sink(f.settings("{\n\"ops\": [\"norm\"]}"));
    REQUIRE(sink.begin_revision(norms(revision)));
    CHECK(event_files_in(f.events()).size() == (revision == 4 ? 0 : 1));
    for (std::int64_t step = 3; step < 5; ++step)
      REQUIRE(sink.write_step(Step{step}, {norm_record(step, 0.5)}));
  }
  REQUIRE(event_files_in(f.events()).size() == 2);
  const auto events = parse_events(read_text(event_files_in(f.events()).at(1))).events;
  REQUIRE(events.size() == 4);
  CHECK(events.at(0).file_version() == "brain.Event:2");
  CHECK(events.at(0).wall_time() > 1.7e9);
  const auto& text = events.at(1).summary().value(0);
  CHECK(text.tag() == "config");
  CHECK(text.metadata().plugin_data().plugin_name() == "text");
  CHECK(text.tensor().string_val(0) == "Revision 7\n\n    {\n    \"ops\": [\"norm\"]}\n");
  CHECK(events.at(1).step() == 3);
  CHECK(events.at(2).wall_time() == events.at(1).wall_time());
  CHECK(
      points_in(f.events()) ==
      std::vector<Point>{{kNormTag, 3, 0.5F}, {kNormTag, 4, 0.5F}, {kNormTag, 3, 0.5F}, {kNormTag, 4, 0.5F}});
}

TEST_CASE("rotated files begin with the version and have the config once") {
  const Fixture f;
  TensorBoardSink sink(f.settings("{}", 400));
  REQUIRE(sink.begin_revision(norms()));
  for (std::int64_t step = 0; step < 20; ++step)
    REQUIRE(sink.write_step(Step{step}, {norm_record(step, static_cast<double>(step))}));
  const auto files = event_files_in(f.events());
  CHECK(files.size() > 3);
  int texts = 0;
  for (const fs::path& file : files) {
    CHECK(fs::file_size(file) <= 400);
    const auto events = parse_events(read_text(file)).events;
    CHECK(events.at(0).file_version() == "brain.Event:2");
    for (const auto& event : events)
      texts += event.summary().value_size() > 0 && event.summary().value(0).has_tensor();
  }
  CHECK(texts == 1);
  const auto points = points_in(f.events());
  REQUIRE(points.size() == 20);
  for (std::size_t step = 0; step < 20; ++step)
    CHECK(points[step] == Point{kNormTag, static_cast<std::int64_t>(step), static_cast<float>(step)});
}

TEST_CASE("a step larger than a part is written in parts that are reported by kind") {
  const Fixture f;
  TensorBoardSink sink(f.settings());
  std::array<std::uint64_t, kKinds> reported{};
  int parts = 0;
  sink.report_parts([&](Kind kind, std::uint64_t rows) {
    reported[static_cast<std::size_t>(kind)] += rows;
    ++parts;
    return true;
  });
  REQUIRE(sink.begin_revision(norms()));
  std::vector<Record> records = norm_records(1, 40000);
  for (std::size_t i = 0; i < 10; ++i) records[i].kind = Kind::actv;
  REQUIRE(sink.write_step(Step{1}, records));
  CHECK(reported[static_cast<std::size_t>(Kind::actv)] == 10);
  CHECK(reported[static_cast<std::size_t>(Kind::grad_reduced)] == 39990);
  CHECK(parts > 2);
  CHECK(points_in(f.events()).size() == 40000);
}

TEST_CASE("histograms are events with the tag of their parameter and kind") {
  const Fixture f;
  TensorBoardSink sink(f.settings("{}"));
  CHECK(sink.keeps_histograms());
  REQUIRE(sink.begin_revision(norms()));
  const std::uint32_t target = f.names->intern("fc1.weight", 2);
  REQUIRE(target == 1);
  REQUIRE(
      sink.write_histograms(Step{6}, {plain_histogram(6, target), plain_histogram(6, target, Kind::ratio)}));
  const auto events = parse_events(read_text(event_files_in(f.events()).at(0))).events;
  REQUIRE(events.size() == 4);
  CHECK(events.at(1).summary().value(0).tag() == "config");
  for (const std::size_t at : {2u, 3u}) {
    const auto& value = events.at(at).summary().value(0);
    CHECK(value.tag() == (at == 2 ? "update/2:fc1.weight" : "ratio/2:fc1.weight"));
    CHECK(events.at(at).step() == 6);
    REQUIRE(value.histo().bucket_size() == static_cast<int>(kBins));
    CHECK(value.histo().bucket(15) == 2);
    CHECK(value.histo().num() == 2);
  }
}

TEST_CASE("histograms that do not fit are counted exactly and reported by kind") {
  const Fixture f;
  TensorBoardSink sink(f.settings());
  std::array<std::uint64_t, kKinds> reported{};
  sink.report_parts([&](Kind kind, std::uint64_t rows) {
    reported[static_cast<std::size_t>(kind)] += rows;
    return true;
  });
  REQUIRE(sink.begin_revision(norms()));
  std::vector<Histogram> histograms(100, plain_histogram(1, 0));
  histograms.insert(histograms.end(), 7, plain_histogram(1, 0, Kind::ratio));
  REQUIRE(sink.write_histograms(Step{1}, histograms));
  CHECK(reported[static_cast<std::size_t>(Kind::update)] == 100);
  CHECK(reported[static_cast<std::size_t>(Kind::ratio)] == 7);
  const auto before = parse_events(read_text(event_files_in(f.events()).at(0))).events.size();
  std::uint64_t lost = 0;
  {
    const FileSizeLimit limit(fs::file_size(event_files_in(f.events()).at(0)) + 30000);
    const auto outcome = sink.write_histograms(Step{2}, histograms);
    REQUIRE_FALSE(outcome);
    lost = outcome.error().rows_lost;
  }
  CHECK(lost > 0);
  CHECK(lost < 107);
  const auto after = parse_events(read_text(event_files_in(f.events()).at(0))).events.size();
  CHECK(after - before == 107 - lost);
}

TEST_CASE("the rest of a step is given up and counted as lost when the thread is to stop") {
  const Fixture f;
  TensorBoardSink sink(f.settings());
  std::uint64_t written = 0;
  sink.report_parts([&](Kind, std::uint64_t rows) {
    written += rows;
    return false;
  });
  REQUIRE(sink.begin_revision(norms()));
  const auto outcome = sink.write_step(Step{1}, norm_records(1, 40000));
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().text == "rest of step 1 not written: stop() timed out");
  CHECK(outcome.error().rows_lost == 40000 - written);
  CHECK(points_in(f.events()).size() == written);
}

TEST_CASE("a config that does not fit is written with the next step and rows wait for nothing else") {
  const Fixture f;
  TensorBoardSink sink(f.settings(std::string(5000, '#')));
  REQUIRE(sink.begin_revision(norms()));
  {
    const FileSizeLimit limit(1000);
    const auto outcome = sink.write_step(Step{1}, norm_records(1, 3));
    REQUIRE_FALSE(outcome);
    CHECK(outcome.error().rows_lost == 3);
  }
  REQUIRE(sink.write_step(Step{2}, norm_records(2, 3)));
  const auto events = parse_events(read_text(event_files_in(f.events()).at(0))).events;
  REQUIRE(events.size() == 5);
  CHECK(events.at(1).summary().value(0).tensor().string_val(0).size() > 5000);
}

TEST_CASE("on a full disk rows sent are rows written and rows lost and writing resumes") {
  const Fixture f;
  std::uint64_t sent = 0;
  RetryingSink::Outcome sum;
  std::uint64_t lost_at_the_end = 1;
  std::vector<Point> points;
  const bool mounted = on_small_disk(f.scratch.path(), 300000, [&] {
    RetryingSink sink(std::make_unique<TensorBoardSink>(f.settings("{}", 50000)), norms(),
                      {std::chrono::milliseconds(0), std::chrono::milliseconds(0)});
    for (std::int64_t step = 0; step < 30; ++step) {
      if (step == 10) write_text(f.scratch.path() / "filler", std::string(200000, 'x'));
      if (step == 20) fs::remove(f.scratch.path() / "filler");
      const auto outcome = sink.write(Step{step}, norm_records(step, 100), {});
      sent += 100;
      sum.written += outcome.written;
      sum.lost += outcome.lost;
      if (step >= 20) lost_at_the_end += outcome.lost;
    }
    points = points_in(f.events());
  });
  if (!mounted) {
    WARN("skipped: needs root, to mount a small disk");
    return;
  }
  CHECK(sum.lost > 0);
  CHECK(lost_at_the_end == 1);
  CHECK(sent == sum.written + sum.lost);
  CHECK(points.size() == sum.written);
}

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

}  // namespace
}  // namespace gradmon
