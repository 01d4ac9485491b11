// SPDX-License-Identifier: Apache-2.0
// gradmonctl convert merge: rows of databases and CSV files of several runs, and what the tables say of the
// job.
#include <cmath>
#include <functional>

#include "control/debian_version.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/run_command.h"
#include "tests/writers/sinks/metrics_database.h"
#include "tools/convert/job_runs.h"
#include "writers/sinks/csv_sink.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFirst = "1a2b3c4d";
constexpr const char* kSecond = "5e6f7a8b";

enum class Form { csv, sqlite };

// Writes rows of grad_reduced of one rank and run through a sink, as a job does.
class RunRank {
 public:
  RunRank(const fs::path& output, const std::string& time, int rank, const std::string& id, Form form)
      : directory_(output / (time + "-rank" + std::to_string(rank) + "-" + id)) {
    fs::create_directories(directory_);
    if (form == Form::csv) {
      sink_ = std::make_unique<CsvSink>([this] { return directory_; }, names_);
    } else {
      MetricsFile::Options options;
      options.directory = [this] { return directory_; };
      sink_ = std::make_unique<SqliteSink>(options, names_, Rank{rank});
    }
    REQUIRE(sink_->begin_revision(layout_with({Op::norm, Op::absmax})).has_value());
  }

  const fs::path& directory() const { return directory_; }
  // Targets "layers.{i}.weight"; the norm is `value` + i.
  void write(std::int64_t step, std::uint32_t targets, double value) {
    std::vector<Record> records = norm_records(*names_, step, targets);
    for (std::uint32_t i = 0; i < targets; ++i) {
      records[i].values[static_cast<std::size_t>(Op::norm)] = value + i;
      records[i].values[static_cast<std::size_t>(Op::absmax)] = std::nan("");
      records[i].mask = static_cast<ValueMask>(bit_of(Op::norm) | bit_of(Op::absmax));
      records[i].shape = names_->intern("[2, 2]");
      records[i].dtype = DType::bfloat16;
    }
    REQUIRE(sink_->write_step(Step{step}, records).has_value());
  }

 private:
  const fs::path directory_;
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();
  std::unique_ptr<Sink> sink_;
};

constexpr const char* kRunFile =
    R"({"format": 1, "run_id": "1a2b3c4d", "started": "2026-11-24T12:04:37.120+01:00",
 "world_size": 3, "versions": {"gradmon": "0.2.0", "torch": "2.13"},
 "ranks": [{"rank": 0, "host": "alpha", "pid": 17}, {"rank": 1, "host": "beta", "pid": 18}],
 "revisions": [{"revision": 1, "effective_step": 0, "on": true, "cause": "start", "by": "root",
                "config": {"targets": {"": {}}, "ops": ["norm"]}},
               {"revision": 2, "effective_step": 4, "on": false, "cause": "ctl", "by": "ann", "config": {}}],
 "revisions_left_out": 0, "scopes": {"0:layers.0.weight": {"scope": "whole"}}})";

// A first run of ranks 0 (a database) and 1 (CSV), of 3; a second run of rank 0 alone, from step 2 on.
void write_job(const TemporaryDirectory& output) {
  RunRank rank0(output.path(), "Nov24_12-04-37", 0, kFirst, Form::sqlite);
  RunRank rank1(output.path(), "Nov24_12-04-37", 1, kFirst, Form::csv);
  for (int step = 0; step < 4; ++step) {
    rank0.write(step, 2, 10 * step);
    if (step != 1) rank1.write(step, step == 3 ? 1 : 2, 100 + 10 * step);
  }
  RunRank again(output.path(), "Nov24_13-00-00", 0, kSecond, Form::csv);
  for (int step = 2; step < 5; ++step) again.write(step, 2, 1000 + 10 * step);
  write_text(output / "run-1a2b3c4d.json", kRunFile);
}

std::string table_text(const fs::path& database, const std::string& query) {
  std::string text = "-- " + query + "\n";
  for (const std::string& row : query_rows(database, query)) text += row + "\n";
  return text;
}

std::string without(std::string text, const std::string& path) {
  for (std::size_t at = text.find(path); at != std::string::npos; at = text.find(path, at))
    text.replace(at, path.size(), "OUT");
  return text;
}

}  // namespace

TEST_CASE("a merged database has the rows of all runs and says what job it is of") {
  const TemporaryDirectory output, place;
  write_job(output);
  const fs::path file = place / "job.db";
  const auto result = run_convert({"merge", output.path().string(), "-o", file.string()});
  CHECK(result.err == "");
  REQUIRE(result.code == kExitDone);
  CHECK(result.out ==
        "15 rows of ranks 0, 1 in " + file.string() +
            "\n4 rows are left out, of steps that a later start of the job has collected again\n");
  CHECK(integrity_error(file) == "");
  std::string text;
  for (const char* query :
       {"SELECT rank, step, target, op, value FROM v_metrics ORDER BY rank, step, target, op",
        "SELECT * FROM target_tensors ORDER BY rank, target_id", "SELECT * FROM job_runs ORDER BY started",
        "SELECT * FROM job_versions", "SELECT * FROM job_ranks ORDER BY run_id, rank",
        "SELECT * FROM job_revisions", "SELECT * FROM job_gaps", "SELECT * FROM job_problems",
        "SELECT name FROM job_about ORDER BY name"})
    text += table_text(file, query);
  CHECK(golden_difference("merge.txt", without(text, output.path().string())) == "");
}

TEST_CASE("what rows are of comes from the scopes.json of the last start that has it") {
  const TemporaryDirectory output, place;
  write_job(output);
  const auto write_scopes = [&](const std::string& directory, const std::string& targets) {
    write_text(output / directory / "scopes.json", R"({"format": 1, "targets": )" + targets + "}");
  };
  const std::string of_first = R"({"0:layers.0.weight": {"grad_reduced": {"scope":"replica"}},
                                   "0:layers.1.weight": {"grad_reduced": {"scope":"piece","begin":2}}})";
  write_scopes(std::string("Nov24_12-04-37-rank0-") + kFirst, of_first);
  write_scopes(
      std::string("Nov24_13-00-00-rank0-") + kSecond,
      R"({"0:layers.0.weight": {"grad_reduced": {"scope":"whole"}, "new_kind": {"scope":"whole"}}})");
  write_text(output / (std::string("Nov24_12-04-37-rank1-") + kFirst) / "scopes.json", "{");
  const fs::path file = place / "job.db";
  REQUIRE(run_convert({"merge", output.path().string(), "-o", file.string()}).code == kExitDone);
  CHECK(query_rows(file,
                   "SELECT rank, target_name, scope, detail FROM target_scope JOIN monitoring_targets "
                   "USING (target_id) WHERE metric_id = 4 ORDER BY target_name") ==
        TextRows{R"(0|layers.0.weight|whole|{"scope":"whole"})",
                 R"(0|layers.1.weight|piece|{"scope":"piece","begin":2})"});
  CHECK(query_rows(file, "SELECT count(*) FROM job_problems WHERE text GLOB '*\"targets\"*'") ==
        TextRows{"1"});
}

TEST_CASE("of a rank with two directories in one run all rows are counted") {
  const TemporaryDirectory output, place;
  RunRank first(output.path(), "Nov24_12-04-37", 0, kFirst, Form::csv);
  RunRank second(output.path(), "Nov24_12-30-00", 0, kFirst, Form::csv);
  for (int step = 0; step < 2; ++step) first.write(step, 2, 0);
  second.write(2, 2, 0);
  const fs::path file = place / "job.db";
  REQUIRE(run_convert({"merge", output.path().string(), "-o", file.string()}).code == kExitDone);
  CHECK(query_rows(file, "SELECT rank, rows, first_step, last_step FROM job_ranks") == TextRows{"0|6|0|2"});
}

TEST_CASE("a broken scopes.json of a rank with two starts is one problem") {
  const TemporaryDirectory output, place;
  write_job(output);
  write_text(output / (std::string("Nov24_12-04-37-rank0-") + kFirst) / "scopes.json", "{");
  const fs::path file = place / "job.db";
  REQUIRE(run_convert({"merge", output.path().string(), "-o", file.string()}).code == kExitDone);
  CHECK(query_integer(file, "SELECT count(*) FROM job_problems") == 1);
}

TEST_CASE("every table of a merged database is described in it") {
  const TemporaryDirectory output, place;
  write_job(output);
  const fs::path file = place / "job.db";
  REQUIRE(run_convert({"merge", output.path().string(), "-o", file.string()}).code == kExitDone);
  CHECK(query_rows(file,
                   "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'job_*' AND name "
                   "NOT IN (SELECT name FROM job_about) AND name <> 'job_about'")
            .empty());
}

TEST_CASE("a run is named by its file or by the directory of one rank") {
  const TemporaryDirectory output, place;
  write_job(output);
  const auto rows_of = [&](std::vector<std::string> runs) {
    const TemporaryDirectory to;
    runs.insert(runs.begin(), "merge");
    runs.insert(runs.end(), {"-o", (to / "job.db").string()});
    const auto result = run_convert(runs);
    return result.code == kExitDone ? result.out.substr(0, result.out.find(" in ")) : result.err;
  };
  CHECK(rows_of({(output / "run-1a2b3c4d.json").string()}) == "13 rows of ranks 0, 1");
  CHECK(rows_of({(output / "Nov24_12-04-37-rank0-1a2b3c4d").string()}) == "8 rows of rank 0");
  // The runs follow each other as they are given; a directory that is given twice is read once.
  CHECK(rows_of({(output / "Nov24_13-00-00-rank0-5e6f7a8b").string(), output.path().string()}) ==
        "15 rows of ranks 0, 1");
  CHECK(rows_of({place.path().string()}).find("no directory of a rank and no CSV file") != std::string::npos);
}

TEST_CASE("ranks of one run in two places have what each place knows of them") {
  const TemporaryDirectory output, other, place;
  write_job(output);
  const char* const moved = "Nov24_12-04-37-rank1-1a2b3c4d";
  fs::rename(output / moved, other / moved);
  const std::string a = output.path().string(), b = other.path().string();
  for (const auto& [first, second] : {std::pair(a, b), std::pair(b, a)}) {
    const fs::path file = place / (first == a ? "ab.db" : "ba.db");
    REQUIRE(run_convert({"merge", first, second, "-o", file.string()}).code == kExitDone);
    CHECK(query_rows(file,
                     "SELECT host, rows, first_step, last_step FROM job_ranks WHERE run_id = '1a2b3c4d' AND "
                     "rank = 1") == TextRows{"beta|5|0|3"});
  }
}

TEST_CASE("of two runs the rows of the one that is given last are taken") {
  const TemporaryDirectory output, place;
  write_job(output);
  const std::string first = (output / "Nov24_12-04-37-rank0-1a2b3c4d").string();
  const std::string second = (output / "Nov24_13-00-00-rank0-5e6f7a8b").string();
  const auto norm_of_step_2 = [&](const std::string& a, const std::string& b) {
    const TemporaryDirectory to;
    REQUIRE(run_convert({"merge", a, b, "-o", (to / "job.db").string()}).code == kExitDone);
    return query_rows(
        to / "job.db",
        "SELECT value FROM v_metrics WHERE step = 2 AND op = 'norm' AND target = 'layers.0.weight'");
  };
  CHECK(norm_of_step_2(first, second) == TextRows{"1020.0"});
  CHECK(norm_of_step_2(second, first) == TextRows{"20.0"});
}

TEST_CASE("a damaged database and a run file that is none are named and the rest is merged") {
  const TemporaryDirectory output, place;
  write_job(output);
  const fs::path database = output / "Nov24_12-04-37-rank0-1a2b3c4d/monitor_metrics.db";
  write_text(database, std::string(9000, 'x'));
  write_text(output / "run-5e6f7a8b.json", "{");
  const auto result = run_convert({"merge", output.path().string(), "-o", (place / "job.db").string()});
  CHECK(result.code == kExitDone);
  CHECK(result.err.find(database.string()) != std::string::npos);
  CHECK(result.err.find("run-5e6f7a8b.json: expected a JSON object with \"format\": 1") != std::string::npos);
  CHECK(result.out.substr(0, 11) == "11 rows of ");
  CHECK(query_integer(place / "job.db", "SELECT count(*) FROM job_problems") == 2);
}

TEST_CASE("a target has its shape in a database of more than a million changes of shapes") {
  const TemporaryDirectory output, place;
  write_job(output);
  const fs::path directory = output / (std::string("Nov24_12-04-37-rank0-") + kFirst);
  auto database = SqliteDatabase::open(directory / kMetricsFileName, SqliteDatabase::Access::read_write);
  REQUIRE(database.has_value());
  REQUIRE(
      database
          ->run("UPDATE target_tensors SET shape = '[3]' WHERE target_id = 2;"
                "INSERT INTO target_tensors VALUES (4, 2, 0, 2, '[5, 5]', 'torch.float32');"
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000001) "
                "INSERT INTO target_tensors SELECT 4, 1, 0, i + 9, '[' || i || ']', 'torch.float32' FROM n")
          .has_value());
  *database = {};
  const fs::path file = place / "job.db";
  REQUIRE(run_convert({"merge", directory.string(), "-o", file.string()}).code == kExitDone);
  CHECK(query_rows(file,
                   "SELECT target_name, step, shape, dtype FROM target_tensors JOIN monitoring_targets USING "
                   "(target_id) ORDER BY target_name, step") ==
        TextRows{"layers.0.weight|0|[2, 2]|torch.bfloat16", "layers.1.weight|0|[3]|torch.bfloat16",
                 "layers.1.weight|2|[5, 5]|torch.float32"});
}

TEST_CASE("files of a run nested too deep for the stack are problems and the rest is merged") {
  const TemporaryDirectory output, place;
  write_job(output);
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  write_text(output / "run-5e6f7a8b.json", R"({"format": 1, "scopes": )" + deep + "}");
  write_text(output / (std::string("Nov24_13-00-00-rank0-") + kSecond) / "scopes.json",
             R"({"format": 1, "targets": {"0:layers.0.weight": {"grad_reduced": {"scope": "whole", "x": )" +
                 deep + "}}}}");
  const auto result = run_convert({"merge", output.path().string(), "-o", (place / "job.db").string()});
  CHECK(result.code == kExitDone);
  CHECK(result.out.substr(0, 11) == "15 rows of ");
  for (const char* file : {"run-5e6f7a8b.json", "scopes.json"})
    CHECK(result.err.find(std::string(file) + ": expected brackets nested at most 100 deep") !=
          std::string::npos);
}

TEST_CASE("the notes of a run survive any JSON") {
  CHECK(parse_run_notes(R"({"format": 1})")->world_size == -1);
  for (const char* text : {"", "[]", "null", "{\"format\": 2}", "{\"format\": \"1\"}", "{\"format\": 1"})
    CHECK_FALSE(parse_run_notes(text).has_value());
  const auto odd = parse_run_notes(
      R"({"format": 1, "world_size": "x", "versions": [1], "ranks": [3, {"rank": {}}], "revisions": {"a": 1},
          "scopes": "\ud83d\ude00"})");
  REQUIRE(odd.has_value());
  CHECK(odd->ranks.size() == 1);
  CHECK(odd->ranks[0].rank == -1);
  CHECK(odd->revisions.empty());
}

TEST_CASE("the scopes of 100,000 parameters keep their order") {
  std::string scopes = "{";
  for (int i = 100'000; i > 0; --i)
    scopes += "\"0:layers." + std::to_string(i) + R"(.weight":{"scope":"shard","index":0,"count":2},)";
  const std::string text = R"({"format": 1, "scopes": )" + scopes;
  const auto notes = parse_run_notes(text + R"("0:last": 1, "0:layers.1.weight": {"scope": "whole"}}})");
  REQUIRE(notes.has_value());
  const std::string last = R"("0:layers.1.weight":{"scope":"whole"},"0:last":1})";
  REQUIRE(notes->scopes.size() > last.size());
  const std::size_t rest = notes->scopes.size() - last.size();
  CHECK(notes->scopes.substr(rest) == last);  // Of a duplicate key the last value counts.
  CHECK(notes->scopes.substr(0, rest) == scopes.substr(0, rest));
}

}  // namespace gradmon
