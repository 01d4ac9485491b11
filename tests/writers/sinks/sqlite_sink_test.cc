// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/sqlite_sink.h"

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/split_csv.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/killed_writer.h"
#include "tests/writers/sample_records.h"
#include "tests/writers/sinks/metrics_database.h"
#include "writers/sinks/columns.h"
#include "writers/sinks/csv_sink.h"
#include "writers/sinks/csv_text.h"

using namespace gradmon;

namespace {

const std::vector<Op> kSixOps = {Op::norm, Op::min, Op::max, Op::mean, Op::nans, Op::zeros};

struct Fixture {
  std::filesystem::path path() const { return scratch.path() / kMetricsFileName; }
  TextRows rows(const std::string& query) const { return query_rows(path(), query); }
  void begin(const Layout& layout) { REQUIRE(sink.begin_revision(layout)); }
  void write(std::int64_t step, const std::vector<Record>& records) {
    const auto written = sink.write_step(Step{step}, records);
    CHECK((written ? "" : written.error().text) == "");
  }

  const TemporaryDirectory scratch;
  const std::shared_ptr<NameTable> names = std::make_shared<NameTable>();
  SqliteSink sink{file_options(scratch.path()), names, Rank{3}};
};

template <class Which>
Record& set(Record& record, Which which, double value) {
  record.values[static_cast<std::size_t>(which)] = value;
  record.mask = static_cast<ValueMask>(record.mask | bit_of(which));
  return record;
}

constexpr std::uint32_t kRows = 1000;

class Job {
 public:
  Job(const std::filesystem::path& directory, Resume resume)
      : sink_(file_options(directory), names_, Rank{3}, resume) {
    REQUIRE(sink_.begin_revision(layout_with({Op::norm})));
  }
  tl::expected<void, SinkError> write(std::int64_t step, std::uint32_t rows = kRows) {
    return sink_.write_step(Step{step}, norm_records(*names_, step, rows));
  }

 private:
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();
  SqliteSink sink_;
};

constexpr int kNdigits = 9;

double random_value(std::mt19937_64& random) {
  switch (random() % 12) {
    case 0:
      return std::nan("");
    case 1:
      return std::numeric_limits<double>::infinity();
    case 2:
      return 0;
    default:
      return std::normal_distribution<double>(0,
                                              std::pow(10.0, static_cast<double>(random() % 13) - 6))(random);
  }
}

// Records of every kind with random values, of which some are missing.
std::vector<Record> random_records(std::int64_t step, NameTable& names, const Layout& layout) {
  std::mt19937_64 random(static_cast<std::uint64_t>(step));
  std::vector<Record> records;
  for (std::size_t kind = 0; kind < kRecordKinds; ++kind) {
    for (std::uint32_t i = 0; i < 20; ++i) {
      Record record;
      record.kind = static_cast<Kind>(kind);
      record.step = step;
      record.sequence = i;
      record.target = names.intern("module." + std::to_string(i), static_cast<int>(i % 3));
      record.micro_step = static_cast<std::int32_t>(random() % 4);
      for (const RowColumn& column : columns_of(record.kind, layout)) {
        const bool number = column.source == RowColumn::Source::number;
        if ((!number && column.source != RowColumn::Source::count) || random() % 8 == 0) continue;
        record.values[column.value] = number ? random_value(random) : static_cast<double>(random() % 1000);
        record.mask = static_cast<ValueMask>(record.mask | 1U << column.value);
      }
      records.push_back(record);
    }
  }
  return records;
}

// "kind|name|vpp_stage|micro_step|op" to the number as CSV prints it.
using Values = std::map<std::string, std::string>;

void read_csv(const std::filesystem::path& file, const std::string& kind, Values& values) {
  std::istringstream lines(read_text(file));
  std::string line;
  REQUIRE(std::getline(lines, line));
  const std::vector<std::string> titles = split_csv(line);
  while (std::getline(lines, line)) {
    const std::vector<std::string> cells = split_csv(line);
    std::map<std::string, std::string> row;
    for (std::size_t i = 0; i < cells.size(); ++i) row[titles[i]] = cells[i];
    // A scalar's stage is not in its file.
    const std::string place = kind + "|" + row["name"] + "|" +
                              (row.count("vpp_stage") ? row["vpp_stage"] : "-") + "|" +
                              (row.count("micro_step") ? row["micro_step"] : "0") + "|";
    for (const std::string& title : titles) {
      if (title == "name" || title == "vpp_stage" || title == "micro_step" || title == "step" ||
          title == "shape" || title == "dtype" || row[title].empty())
        continue;
      values[place + title] = row[title];
    }
  }
}

std::string as_csv_prints(const std::string& op, const std::string& number) {
  std::string text;
  const double value = number.empty() ? std::nan("") : std::stod(number);
  op == "nans" || op == "samples" ? append_count(text, value) : append_number(text, value, kNdigits);
  return text;
}

}  // namespace

TEST_CASE("a row has the values of its record, with the rank, the step and the target") {
  Fixture f;
  f.begin(layout_with(kSixOps));
  // Values by Op: min, max, mean, norm, nans, zeros.
  const std::array<double, kOps> values = {-2.5, 1.75, 0.1, 6.6531857, 2, 0.25};
  f.write(7, {sample_record(Kind::grad_reduced, 7, f.names->intern("fc1.weight", 1),
                            f.names->intern("[16, 8]"), values)});
  CHECK(f.rows("SELECT p.*, target_name, vpp_stage, micro_step FROM metric_4_step_0_499 p JOIN "
               "monitoring_targets USING (target_id)") ==
        TextRows{"3|7|1|6.6531857|-2.5|1.75|0.25|2.0|0.1|0|fc1.weight|1|0"});
  CHECK(f.rows("SELECT * FROM target_tensors") == TextRows{"4|1|3|7|[16, 8]|torch.float32"});
  CHECK(f.rows("SELECT * FROM monitoring_metrics") == TextRows{"4|grad_reduced"});
  CHECK(f.rows("SELECT * FROM global_stats ORDER BY 1") ==
        TextRows{"max_rank|3", "max_step|7", "min_step|7", "schema_version|1", "step_partition_size|500"});
}

TEST_CASE("what a target's rows are of is there for each micro step, and follows a change") {
  const TemporaryDirectory scratch;
  const auto names = std::make_shared<NameTable>();
  const auto scopes = std::make_shared<ScopeTable>();
  SqliteSink sink(file_options(scratch.path()), names, Rank{3}, Resume::no, scopes);
  REQUIRE(sink.begin_revision(layout_with({Op::norm})));
  const std::uint32_t output = names->intern("fc.output");
  const auto write = [&](std::int64_t step, const std::vector<std::int32_t>& micro_steps) {
    std::vector<Record> records = {norm_record(step, names->intern("fc.weight"), 1)};
    for (const std::int32_t micro_step : micro_steps) {
      records.push_back(norm_record(step, output, 1));
      records.back().kind = Kind::actv;
      records.back().micro_step = micro_step;
    }
    REQUIRE(sink.write_step(Step{step}, records));
  };
  const auto rows = [&] {
    return query_rows(scratch.path() / kMetricsFileName,
                      "SELECT metric_name, target_name, micro_step, rank, scope, detail FROM target_scope "
                      "JOIN monitoring_targets USING (target_id) JOIN monitoring_metrics USING (metric_id) "
                      "ORDER BY micro_step");
  };
  write(0, {0});
  CHECK(rows().empty());  // nothing is known
  scopes->set(Kind::actv, output, names->intern(R"({"scope": "local"})"));
  write(1, {0, 1});
  CHECK(rows() == TextRows{R"(actv|fc.output|0|3|local|{"scope": "local"})",
                           R"(actv|fc.output|1|3|local|{"scope": "local"})"});
  scopes->set(Kind::actv, output, names->intern(R"({"scope": "shard", "index": 1, "count": 2})"));
  write(2, {1});
  CHECK(rows() == TextRows{R"(actv|fc.output|0|3|local|{"scope": "local"})",
                           R"(actv|fc.output|1|3|shard|{"scope": "shard", "index": 1, "count": 2})"});
}

TEST_CASE("the schema is the one of the golden file") {
  Fixture f;
  f.begin(layout_with({Op::norm, Op::nans}));
  f.write(1200, {norm_record(1200, f.names->intern("fc1.weight"), 1)});
  std::string schema;
  for (const std::string& row : f.rows("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name"))
    schema += row + ";\n";
  schema += "application_id " + f.rows("PRAGMA application_id")[0] + "\nuser_version " +
            f.rows("PRAGMA user_version")[0] + "\n";
  CHECK(golden_difference("metrics_schema.txt", schema) == "");
}

TEST_CASE("NaN, infinity and a missing value are told apart") {
  Fixture f;
  f.begin(layout_with({Op::norm, Op::min, Op::max, Op::mean}));
  Record record = norm_record(0, f.names->intern("layers.3.fc.weight"), std::nan(""));
  set(record, Op::min, -std::numeric_limits<double>::infinity());
  set(record, Op::max, std::numeric_limits<double>::infinity());
  f.write(0, {record});
  CHECK(f.rows("SELECT norm, min, max, mean, nan_mask FROM metric_4_step_0_499") == TextRows{"|-inf|inf||1"});
  CHECK(f.rows("SELECT op, value FROM v_metrics ORDER BY op") == TextRows{"max|inf", "min|-inf", "norm|"});
  CHECK(f.rows("SELECT target, op, value FROM v_nonfinite ORDER BY op") ==
        TextRows{"layers.3.fc.weight|max|inf", "layers.3.fc.weight|min|-inf", "layers.3.fc.weight|norm|nan"});
}

TEST_CASE("rows of a step with NaN elements are in v_nonfinite even if no statistic is NaN") {
  Fixture f;
  f.begin(layout_with({Op::norm, Op::nans}));
  Record record = norm_record(0, f.names->intern("fc"), 1);
  Record clean = norm_record(0, f.names->intern("clean"), 1);
  f.write(0, {set(record, Op::nans, 2), set(clean, Op::nans, 0)});
  CHECK(f.rows("SELECT target, op, value FROM v_nonfinite") == TextRows{"fc|nans|2.0"});
}

TEST_CASE("every kind has its own metric and its own statistics") {
  Fixture f;
  f.begin(layout_with({Op::norm}));
  std::vector<Record> records;
  const auto add = [&](Kind kind, const char* name, int micro_step, auto column, double value) {
    Record record;
    record.kind = kind;
    record.step = 4;
    record.micro_step = micro_step;
    record.target = f.names->intern(name);
    records.push_back(set(record, column, value));
  };
  add(Kind::actv, "fc.input", 2, Op::norm, 1);
  add(Kind::grad_unreduced, "fc.weight", 2, Op::norm, 2);  // without monitor_mbs_grad: micro step 0
  add(Kind::attention_hook, "attention", 1, Column::softmax_max, 3);
  add(Kind::linear_hook, "linear", 0, Column::sr, 4);
  add(Kind::other, "all_reduce.post_0@a.py[3]", 0, Op::norm, 5);
  add(Kind::other, "fc.weight", 0, Column::mg_direction, 6);
  add(Kind::moe_router_weight_hook, "router", 0, Column::cosine, 7);
  add(Kind::moe_router_logit_hook, "router", 1, Column::entropy, 8);
  add(Kind::scalar, "loss", 0, Column::value, 9);
  set(records.back(), Column::samples, 123456789012.0);
  f.write(4, records);
  CHECK(f.rows("SELECT metric, target, micro_step, op, value FROM v_metrics ORDER BY value, op") ==
        TextRows{"actv|fc.input|2|norm|1.0", "grad_unreduced|fc.weight|0|norm|2.0",
                 "attention_hook|attention|1|softmax_max|3.0", "linear_hook|linear|0|sr|4.0",
                 "other|all_reduce.post_0@a.py[3]|0|norm|5.0", "other|fc.weight|0|mg_direction|6.0",
                 "moe_router_weight_hook|router|0|cosine|7.0", "moe_router_logit_hook|router|1|entropy|8.0",
                 "scalar|loss|0|value|9.0", "scalar|loss|0|samples|123456789012.0"});
  CHECK(f.rows("SELECT metric_id, stat_name FROM metric_stats ORDER BY 1, 2") ==
        TextRows{"1|norm", "3|norm", "9|entropy", "9|softmax_max", "10|kernel_norm", "10|sr",
                 "11|mg_direction", "11|norm", "12|cosine", "13|entropy", "14|samples", "14|value"});
}

TEST_CASE("a partition holds 500 steps") {
  Fixture f;
  f.begin(layout_with({Op::norm}));
  for (const std::int64_t step : {499, 500, 999, 1000}) f.write(step, {norm_record(step, 0, 1)});
  CHECK(f.rows("SELECT name FROM sqlite_schema WHERE name GLOB 'metric_4*' ORDER BY name") ==
        TextRows{"metric_4_step_0_499", "metric_4_step_1000_1499", "metric_4_step_500_999"});
  CHECK(f.rows("SELECT step FROM v_metrics ORDER BY step") == TextRows{"499", "500", "999", "1000"});
  CHECK(f.rows("SELECT stat_value FROM global_stats WHERE stat_name GLOB 'm*_step' ORDER BY 1") ==
        TextRows{"499", "1000"});
}

TEST_CASE("a revision with other ops adds columns to every partition of the metric") {
  Fixture f;
  f.begin(layout_with({Op::norm}, 1));
  f.write(499, {norm_record(499, f.names->intern("a"), 1)});
  f.write(500, {norm_record(500, f.names->intern("a"), 2)});
  f.begin(layout_with({Op::max}, 2));
  Record record = norm_record(501, f.names->intern("a"), 3);
  f.write(501, {set(record, Op::max, 4)});
  f.begin(layout_with({Op::norm}, 3));
  f.write(502, {norm_record(502, f.names->intern("a"), 5)});
  CHECK(f.rows("SELECT step, norm, max FROM metric_4_step_500_999") ==
        TextRows{"500|2.0|", "501||4.0", "502|5.0|"});
  CHECK(f.rows("SELECT step, norm, max FROM metric_4_step_0_499") == TextRows{"499|1.0|"});
  CHECK(f.rows("SELECT step, op, value FROM v_metrics ORDER BY step") ==
        TextRows{"499|norm|1.0", "500|norm|2.0", "501|max|4.0", "502|norm|5.0"});
}

TEST_CASE("shape and data type are noted where they change") {
  Fixture f;
  f.begin(layout_with({Op::norm}));
  for (std::int64_t step = 0; step < 6; ++step) {
    Record record = norm_record(step, f.names->intern("x"), 1);
    record.shape = f.names->intern(step < 3 ? "[4, 8]" : "[5, 8]");
    record.dtype = step < 5 ? DType::float32 : DType::bfloat16;
    f.write(step, {record});
  }
  CHECK(f.rows("SELECT step, shape, dtype FROM target_tensors ORDER BY step") ==
        TextRows{"0|[4, 8]|torch.float32", "3|[5, 8]|torch.float32", "5|[5, 8]|torch.bfloat16"});
}

TEST_CASE("v_layer_step folds the targets of a layer as the statistic says") {
  Fixture f;
  f.begin(layout_with({Op::norm, Op::max}));
  const auto record = [&](const char* name, double norm, double max) {
    Record made = norm_record(1, f.names->intern(name), norm);
    return set(made, Op::max, max);
  };
  f.write(1, {record("layers.3.fc.weight", 3, 1), record("layers.3.fc.bias", 4, 2), record("head", 1, 1),
              record("layers.30.fc.bias", std::nan(""), 2)});
  CHECK(f.rows("SELECT layer, op, targets, nan_targets, least, greatest, value FROM v_layer_step "
               "ORDER BY layer, op") == TextRows{"layers.3|max|2|0|1.0|2.0|2.0",
                                                 "layers.3|norm|2|0|3.0|4.0|5.0",
                                                 "layers.30|max|1|0|2.0|2.0|2.0", "layers.30|norm|1|1|||"});
}

TEST_CASE("a target that occurs twice in a step has one row, and the other is lost and counted") {
  Fixture f;
  f.begin(layout_with({Op::norm}));
  const auto written = f.sink.write_step(
      Step{1}, {norm_record(1, 0, 1), norm_record(1, 0, 2), norm_record(1, f.names->intern("b"), 3)});
  REQUIRE_FALSE(written);
  CHECK(written.error().rows_lost == 1);
  CHECK(written.error().text.find("1 rows of step 1 are already there") != std::string::npos);
  CHECK(f.rows("SELECT norm FROM metric_4_step_0_499") == TextRows{"1.0", "3.0"});
}

TEST_CASE("names of any content and length are kept as they are") {
  Fixture f;
  f.begin(layout_with({Op::norm}));
  std::vector<std::string> all = {"it's",
                                  "say \"x\"",
                                  "",
                                  "two\nlines",
                                  "gewichtµ层",
                                  "a;DROP TABLE x",
                                  std::string(4096, 'n'),
                                  std::string("nul\0nul", 7)};
  std::vector<Record> records;
  for (const std::string& name : all) records.push_back(norm_record(1, f.names->intern(name), 1));
  f.write(1, records);
  CHECK(f.rows("SELECT target_name FROM monitoring_targets ORDER BY target_id") == all);
}

TEST_CASE("rows of a later sink join those of an earlier one in the same database") {
  Fixture f;
  f.begin(layout_with({Op::norm}));
  f.write(1, {norm_record(1, f.names->intern("b"), 1)});
  {
    auto names = std::make_shared<NameTable>();
    SqliteSink second(file_options(f.scratch.path()), names, Rank{3});
    names->intern("a");
    REQUIRE(second.begin_revision(layout_with({Op::norm}, 2)));
    REQUIRE(second.write_step(Step{2}, {norm_record(2, names->intern("b"), 2)}));
  }
  f.write(3, {norm_record(3, f.names->intern("b"), 3)});
  CHECK(f.rows("SELECT step, target, value FROM v_metrics ORDER BY step") ==
        TextRows{"1|b|1.0", "2|b|2.0", "3|b|3.0"});
}

TEST_CASE("a thousand partitions are read through the views") {
  Fixture f;
  f.begin(layout_with({Op::norm}));
  for (std::int64_t step = 0; step < 500'000; step += 500) f.write(step, {norm_record(step, 0, 1)});
  CHECK(f.rows("SELECT count(*), sum(value), max(step) FROM v_metrics") == TextRows{"1000|1000.0|499500"});
  CHECK(f.rows("SELECT count(*) FROM v_metrics WHERE step BETWEEN 1000 AND 2000 AND op = 'norm'") ==
        TextRows{"3"});
}

TEST_CASE("each step is reported in parts, and a sink that should give up leaves the step out") {
  Fixture f;
  std::uint64_t reported = 0;
  bool go_on = true;
  f.sink.report_parts([&](Kind, std::uint64_t rows) {
    reported += rows;
    return go_on;
  });
  f.begin(layout_with({Op::norm}));
  f.write(0, norm_records(*f.names, 0, 10'000));
  CHECK(reported == 10'000);
  go_on = false;
  const auto abandoned = f.sink.write_step(Step{1}, norm_records(*f.names, 1, 10'000));
  REQUIRE_FALSE(abandoned);
  CHECK(abandoned.error().rows_lost == 10'000);
  CHECK(abandoned.error().text.find("stop() timed out") != std::string::npos);
  CHECK(f.rows("SELECT count(*) FROM v_metrics") == TextRows{"10000"});
}

TEST_CASE("a killed job goes on in the same database, with each step once") {
  std::mt19937 random(3);
  for (int i = 0; i < kill_count(10, 300); ++i) {
    const TemporaryDirectory scratch;
    const auto path = scratch / kMetricsFileName;
    const int steps = 1 + static_cast<int>(random() % 8);
    REQUIRE(kill_after(steps, std::chrono::microseconds(random() % 2000),
                       [&, job = std::shared_ptr<Job>()](std::int64_t step) mutable {
                         if (!job)
                           job = std::make_shared<Job>(scratch.path(),
                                                       Resume::yes);  // in the process that is killed
                         if (step == 12) ::pause();
                         return job->write(step).has_value();
                       }) >= 0);
    {
      Job job(scratch.path(), Resume::yes);
      for (std::int64_t step = static_cast<std::int64_t>(random() % static_cast<unsigned>(steps)); step < 12;
           ++step)
        REQUIRE(job.write(step));
    }
    CAPTURE(i, steps);
    REQUIRE(integrity_error(path) == "");
    REQUIRE(!std::filesystem::exists(path.string() + ".aside-1"));
    REQUIRE(query_rows(path, "SELECT DISTINCT count(*) FROM v_metrics GROUP BY step") ==
            TextRows{std::to_string(kRows)});
    REQUIRE(query_integer(path, "SELECT count(DISTINCT step) FROM v_metrics") == 12);
    REQUIRE(query_integer(path, "SELECT count(*) FROM monitoring_targets") == kRows);
  }
}

TEST_CASE("rows that are there count as lost, but not for a resumed job, which adds those that are missing") {
  const TemporaryDirectory scratch;
  REQUIRE(Job(scratch.path(), Resume::no).write(5, 3));
  const auto again = Job(scratch.path(), Resume::no).write(5, 4);
  REQUIRE_FALSE(again);
  CHECK(again.error().rows_lost == 3);
  CHECK(Job(scratch.path(), Resume::yes).write(5, 6));
  CHECK(query_integer(scratch / kMetricsFileName, "SELECT count(*) FROM v_metrics") == 6);
}

TEST_CASE("steps that an earlier job has written keep its shapes, and the first new step has its own") {
  const TemporaryDirectory scratch;
  const auto write = [&](Resume resume, std::int64_t first, std::int64_t last, const char* shape) {
    const auto names = std::make_shared<NameTable>();
    SqliteSink sink(file_options(scratch.path()), names, Rank{3}, resume);
    REQUIRE(sink.begin_revision(layout_with({Op::norm})));
    for (std::int64_t step = first; step <= last; ++step) {
      std::vector<Record> records = norm_records(*names, step, 1);
      records.front().shape = names->intern(shape);
      REQUIRE(sink.write_step(Step{step}, records));
    }
  };
  write(Resume::no, 0, 7, "[8, 512]");
  write(Resume::yes, 5, 9, "[4, 512]");
  CHECK(query_rows(scratch / kMetricsFileName, "SELECT step, shape FROM target_tensors ORDER BY step") ==
        TextRows{"0|[8, 512]", "8|[4, 512]"});
}

TEST_CASE("the database and the CSV files of the same records have the same numbers") {
  const TemporaryDirectory scratch;
  auto names = std::make_shared<NameTable>();
  Layout layout = layout_with({Op::norm, Op::min, Op::max, Op::mean, Op::nans, Op::zeros, Op::absmax});
  layout.ndigits = kNdigits;
  layout.micro_step_in_grad_unreduced = true;
  CsvSink csv([&] { return scratch.path(); }, names);
  SqliteSink sqlite(file_options(scratch.path()), names, Rank{3});
  REQUIRE(csv.begin_revision(layout));
  REQUIRE(sqlite.begin_revision(layout));
  std::size_t compared = 0;
  for (std::int64_t step = 490; step < 510; ++step) {
    const auto records = random_records(step, *names, layout);
    REQUIRE(csv.write_step(Step{step}, records));
    REQUIRE(sqlite.write_step(Step{step}, records));
    Values of_csv;
    const std::string range = "_" + std::to_string(step) + "-" + std::to_string(step) + ".csv";
    for (std::size_t kind = 0; kind < kRecordKinds; ++kind)
      read_csv(scratch.path() / (kKindNames[kind] + range), kKindNames[kind], of_csv);
    Values of_sqlite;
    for (const std::string& row : query_rows(
             scratch.path() / kMetricsFileName,
             "SELECT metric || '|' || target || '|' || CASE metric WHEN 'scalar' THEN '-' ELSE vpp_stage "
             "END || '|' || micro_step || '|' || op, op, value FROM v_metrics WHERE step = " +
                 std::to_string(step))) {
      const std::size_t last = row.rfind('|');
      const std::size_t before = row.rfind('|', last - 1);
      of_sqlite[row.substr(0, before)] =
          as_csv_prints(row.substr(before + 1, last - before - 1), row.substr(last + 1));
    }
    CHECK(of_sqlite == of_csv);
    compared += of_csv.size();
  }
  CHECK(compared > 10'000);
}
