// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/sqlite/sqlite_sink.h"

#include <cmath>
#include <limits>

#include "control/debian_version.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/sample_records.h"
#include "tests/writers/sinks/sqlite/metrics_database.h"
#include GRADMON_CATCH_HEADER

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
            f.rows("PRAGMA user_version")[0] + "\njournal_mode " + f.rows("PRAGMA journal_mode")[0] + "\n";
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
