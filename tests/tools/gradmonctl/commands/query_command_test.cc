// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <sstream>
#include <thread>

#include "control/debian_version.h"
#include "tests/support/golden.h"
#include "tests/tools/convert/rank_run.h"
#include "tests/tools/gradmonctl/gradmonctl_process.h"
#include "tests/writers/files_in.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;

struct Answer {
  int code = -1;
  std::string out;
  std::string err;
};

Answer query(QueryRequest request, const fs::path& place) {
  request.places = {place.string()};
  std::ostringstream out;
  std::ostringstream err;
  const int code = query_command(request, Console{out, err});
  return {code, out.str(), err.str()};
}

Answer query(const std::string& sql, const fs::path& place) {
  QueryRequest request;
  request.sql = sql;
  request.format = RowFormat::csv;
  return query(request, place);
}

const std::vector<std::string> kTargets = {"layers.3.fc.weight", "layers.30.fc.weight", "head.weight"};

// 25 ranks, steps 498 to 502.
void write_run(const fs::path& output_dir) {
  for (int rank = 0; rank < 25; ++rank) {
    RankWriter writer(output_dir, rank);
    for (std::int64_t step = 498; step <= 502; ++step) REQUIRE(writer.write(step, kTargets));
  }
}

TEST_CASE("a query sees the rows of more ranks than SQLite can attach") {
  const TemporaryDirectory scratch;
  write_run(scratch.path());
  const Answer all = query(
      "SELECT count(*), count(DISTINCT rank), min(step), max(step), round(sum(value), 3) FROM v_metrics",
      scratch.path());
  CHECK(all.err == "");
  CHECK(all.code == kExitDone);
  CHECK(all.out ==
        "count(*),count(DISTINCT rank),min(step),max(step),\"round(sum(value), 3)\"\n"
        "750,25,498,502,187920.0\n");
  CHECK(
      query(
          "SELECT rank, value FROM v_metrics WHERE step = 500 AND op = 'norm' AND target = 'head.weight' AND "
          "rank >= 23",
          scratch.path())
          .out == "rank,value\n23,500.23\n24,500.24\n");
}

TEST_CASE("options select the rows that the same SQL selects") {
  const TemporaryDirectory scratch;
  write_run(scratch.path());
  QueryRequest request;
  request.format = RowFormat::csv;
  request.filter = {"grad_reduced", "layers.3.*", "norm", {499, 500}, 7};
  const Answer answer = query(request, scratch.path());
  CHECK(answer.code == kExitDone);
  CHECK(answer.out ==
        "rank,step,metric,target,vpp_stage,micro_step,op,value\n"
        "7,499,grad_reduced,layers.3.fc.weight,0,0,norm,499.07\n"
        "7,500,grad_reduced,layers.3.fc.weight,0,0,norm,500.07\n");
  request.filter.metric = "actv";
  CHECK(query(request, scratch.path()).out == "rank,step,metric,target,vpp_stage,micro_step,op,value\n");
}

TEST_CASE("brackets in a pattern of target names stand for themselves") {
  const TemporaryDirectory scratch;
  RankWriter writer(scratch.path(), 0);
  REQUIRE(writer.write(1, {"a[12].w", "a1.w", "a]12].w", "b[1].w"}));
  QueryRequest request;
  request.format = RowFormat::csv;
  const std::string titles = "rank,step,metric,target,vpp_stage,micro_step,op,value\n";
  request.filter = {"", "a[12].*", "max", {}, -1};
  CHECK(query(request, scratch.path()).out == titles + "0,1,grad_reduced,a[12].w,0,0,max,1.0\n");
  request.filter.target = "?[*";
  CHECK(query(request, scratch.path()).out ==
        titles + "0,1,grad_reduced,a[12].w,0,0,max,1.0\n0,1,grad_reduced,b[1].w,0,0,max,1.0\n");
}

TEST_CASE("conditions joined by OR give the rows of each of them, every row once") {
  const TemporaryDirectory scratch;
  write_run(scratch.path());
  const auto rows = [&](const std::string& sql) {
    const Answer answer = query("SELECT count(*) AS n FROM " + sql, scratch.path());
    CHECK(answer.err == "");
    return answer.out;
  };
  for (const auto& [one, other, count] :
       {std::array<const char*, 3>{"step <= 498", "step >= 502", "n\n300\n"},
        {"step >= 499 AND step < 501", "step = 502", "n\n450\n"},
        {"op = 'norm' AND step < 500", "op = 'max' AND step >= 500", "n\n375\n"},
        {"op = 'norm' AND step = 499", "step = 498", "n\n225\n"},
        {"rank = 3", "rank = 24", "n\n60\n"},
        {"target GLOB 'layers.3.*'", "target = 'head.weight'", "n\n500\n"}}) {
    CAPTURE(one, other);
    const std::string from = "SELECT 1 FROM v_metrics WHERE ";
    CHECK(rows("(" + from + one + " UNION ALL " + from + other + ")") == count);
    CHECK(rows("v_metrics WHERE (" + std::string(one) + ") OR (" + other + ")") == count);
  }
  CHECK(rows("v_metrics WHERE (op = 'norm' AND step <= 500) OR (step >= 500 AND step <= 501)") == "n\n450\n");
}

TEST_CASE("each format prints NaN, infinity, NULL and texts as its golden file shows") {
  const TemporaryDirectory scratch;
  {
    RankWriter writer(scratch.path(), 0);
    Record nan = writer.record(1, "layers.3.say \"x\",\n");
    nan.values[static_cast<std::size_t>(Op::norm)] = std::nan("");
    nan.values[static_cast<std::size_t>(Op::max)] = -INFINITY;
    REQUIRE(writer.write(1, {nan, writer.record(1, "layers.3.b")}));
  }
  QueryRequest request;
  request.filter = {"grad_reduced", "", "", {}, -1};
  request.format = RowFormat::table;
  CHECK(golden_difference("query_table.txt", query(request, scratch.path()).out) == "");
  request.format = RowFormat::csv;
  CHECK(golden_difference("query_csv.txt", query(request, scratch.path()).out) == "");
  request.format = RowFormat::json;
  CHECK(golden_difference("query_json.txt", query(request, scratch.path()).out) == "");
  CHECK(query("SELECT op, value FROM v_metrics WHERE value IS NULL", scratch.path()).out ==
        "op,value\nnorm,\n");
  request.filter.metric = "actv";
  CHECK(query(request, scratch.path()).out == "[]\n");
}

TEST_CASE("v_nonfinite and v_layer_step cover all ranks") {
  const TemporaryDirectory scratch;
  for (const int rank : {0, 1}) {
    RankWriter writer(scratch.path(), rank);
    Record nan = writer.record(3, "layers.3.a");
    nan.values[static_cast<std::size_t>(Op::norm)] = std::nan("");
    REQUIRE(writer.write(3, {nan, writer.record(3, "layers.4.a"), writer.record(3, "layers.4.b")}));
  }
  CHECK(query("SELECT rank, target, op, value FROM v_nonfinite", scratch.path()).out ==
        "rank,target,op,value\n0,layers.3.a,norm,nan\n1,layers.3.a,norm,nan\n");
  CHECK(query("SELECT rank, layer, op, targets, nan_targets, round(value, 3) AS value FROM v_layer_step "
              "WHERE op = 'norm' AND rank = 0",
              scratch.path())
            .out ==
        "rank,layer,op,targets,nan_targets,value\n0,layers.3,norm,1,1,\n0,layers.4,norm,2,0,4.243\n");
  CHECK(query("SELECT rank, run_id FROM v_files", scratch.path()).out ==
        "rank,run_id\n0,8c0ffee0\n1,8c0ffee0\n");
}

TEST_CASE("rows are read in pages") {
  const TemporaryDirectory scratch;
  {
    RankWriter writer(scratch.path(), 0);
    std::vector<std::string> targets;
    for (int i = 0; i < 1500; ++i) targets.push_back("t" + std::to_string(i));
    for (const std::int64_t step : {7, 8, 9, 1000}) REQUIRE(writer.write(step, targets));
  }
  CHECK(query("SELECT count(*), count(DISTINCT step || target) FROM v_metrics WHERE op = 'norm'",
              scratch.path())
            .out == "count(*),count(DISTINCT step || target)\n6000,6000\n");
  CHECK(
      query("SELECT count(*), min(step) FROM v_metrics WHERE step > 7 AND step < 1000", scratch.path()).out ==
      "count(*),min(step)\n6000,8\n");
  CHECK(query("SELECT count(*) FROM v_metrics WHERE target = 'T5' COLLATE NOCASE", scratch.path()).out ==
        "count(*)\n8\n");
}

TEST_CASE("a wrong statement is an error that names the tables") {
  const TemporaryDirectory scratch;
  write_run(scratch.path());
  const Answer wrong = query("SELECT * FROM v_metric", scratch.path());
  CHECK(wrong.code == kExitFailed);
  CHECK(wrong.out == "");
  CHECK(wrong.err.find("gradmonctl: no such table: v_metric; the tables are v_metrics (rank, step, ") == 0);
  for (const char* const sql :
       {"DELETE FROM v_metrics", "CREATE TABLE t (a)", "ATTACH '/tmp/x' AS x", "SELECT 1; SELECT 2", "",
        "-- nothing", "VACUUM INTO '/tmp/gradmon_vacuum'"}) {
    CAPTURE(sql);
    QueryRequest request;
    request.sql = *sql == '\0' ? " " : sql;
    CHECK(query(request, scratch.path()).code == kExitFailed);
  }
  CHECK_FALSE(fs::exists("/tmp/gradmon_vacuum"));
}

TEST_CASE("a file that is no database of gradmon's is named, and the rows of the others are printed") {
  const TemporaryDirectory scratch;
  write_run(scratch.path());
  const fs::path first = scratch / "Nov24_08-30-12-rank0-8c0ffee0/monitor_metrics.db";
  const fs::path second = scratch / "Nov24_08-30-12-rank1-8c0ffee0/monitor_metrics.db";
  const fs::path third = scratch / "Nov24_08-30-12-rank2-8c0ffee0/monitor_metrics.db";
  write_text(first, std::string(5000, 'x'));
  write_text(second, "");  // its rank is just making it
  fs::remove(third);
  write_text(third, "");
  auto newer = SqliteDatabase::open(third, SqliteDatabase::Access::read_write);
  REQUIRE(newer);
  REQUIRE(newer->run("CREATE TABLE a (b); PRAGMA application_id = " + std::to_string(kMetricsApplicationId) +
                     "; PRAGMA user_version = 9"));
  const Answer answer = query("SELECT count(DISTINCT rank) AS ranks FROM v_metrics", scratch.path());
  CHECK(answer.code == kExitPartial);
  CHECK(answer.out == "ranks\n22\n");
  CHECK(answer.err == "gradmonctl: " + first.string() +
                          ": file is not a database; expected a database that gradmon writes\ngradmonctl: " +
                          third.string() +
                          ": found another database; expected one of gradmon's, schema version 1\n");
  CHECK(query("SELECT count(*) FROM v_metrics", first).code == kExitFailed);
}

TEST_CASE("rows are read while they are written, and the writer loses none") {
  for (const JournalMode journal : {JournalMode::wal, JournalMode::rollback}) {
    // A rollback journal waits for the disk several times a step.
    const TemporaryDirectory scratch(fs::is_directory("/dev/shm") ? fs::path("/dev/shm")
                                                                  : fs::temp_directory_path());
    RankWriter writer(scratch.path(), 0, "8c0ffee0", journal);
    std::vector<std::string> targets;
    for (int i = 0; i < 300; ++i) targets.push_back("t" + std::to_string(i));
    REQUIRE(writer.write(0, targets));
    std::atomic<bool> stop{false};
    std::atomic<int> queries{0};
    std::string wrong;  // the first wrong answer
    std::thread reader([&] {
      while (!stop) {
        const Answer answer = query(
            "SELECT count(*) AS bad FROM v_metrics WHERE op = 'norm' AND value <> step", scratch.path());
        if (wrong.empty() && (answer.code != kExitDone || answer.out != "bad\n0\n"))
          wrong = answer.out + answer.err;
        ++queries;
      }
    });
    int lost = 0;
    for (std::int64_t step = 1; step < 100 || queries < 3; ++step)
      lost += writer.write(step, targets) ? 0 : 1;
    stop = true;
    reader.join();
    CHECK(lost == 0);
    CHECK(wrong == "");
  }
}

TEST_CASE("a query changes nothing in a run directory") {
  const TemporaryDirectory scratch;
  write_run(scratch.path());
  const fs::path database = scratch / "Nov24_08-30-12-rank0-8c0ffee0/monitor_metrics.db";
  const std::string before = read_text(database);
  CHECK(query("SELECT count(*) FROM v_layer_step", scratch.path()).code == kExitDone);
  CHECK(read_text(database) == before);
  CHECK(files_in(database.parent_path()) == std::set<std::string>{kMetricsFileName});
}

TEST_CASE("an unfinished transaction of a killed rank is rolled back before its rows are read") {
  const TemporaryDirectory scratch;
  std::vector<std::string> targets;
  for (int i = 0; i < 1000; ++i) targets.push_back("t" + std::to_string(i));
  RankWriter writer(scratch / "live", 0, "8c0ffee0", JournalMode::rollback);
  for (std::int64_t step = 0; step < 10; ++step) REQUIRE(writer.write(step, targets));
  auto killed = SqliteDatabase::open(writer.database(), SqliteDatabase::Access::read_write);
  REQUIRE(killed);
  // A cache of a few pages writes into the file before the transaction ends.
  REQUIRE(
      killed->run("PRAGMA journal_mode = TRUNCATE; PRAGMA cache_size = 1; BEGIN IMMEDIATE; "
                  "UPDATE metric_4_step_0_499 SET norm = -1"));
  fs::copy(scratch / "live", scratch / "left", fs::copy_options::recursive);
  const Answer left = query("SELECT count(*) AS n, min(value) AS least FROM v_metrics", scratch / "left");
  CHECK(left.err == "");
  CHECK(left.out == "n,least\n20000,0.0\n");
}

TEST_CASE("a closed database is read in a directory that the user must not write") {
  const TemporaryDirectory scratch;
  write_run(scratch.path());
  const fs::path run = scratch / "Nov24_08-30-12-rank0-8c0ffee0";
  for (const fs::path& open : {scratch.path(), run, run / kMetricsFileName})
    fs::permissions(open, fs::perms::others_read | fs::perms::others_exec, fs::perm_options::add);
  if (::getuid() != 0) {
    WARN("skipped: needs root, to become another user");
    return;
  }
  const auto read = run_gradmonctl(
      {"query", "SELECT count(*) AS n FROM v_metrics", "--format", "csv", run.string()}, {}, uid_t{65534});
  CHECK(read.err == "");
  CHECK(read.out == "n\n30\n");
}

TEST_CASE("a table has at most 100,000 rows, and says so only if there are more") {
  const TemporaryDirectory scratch;
  write_run(scratch.path());
  QueryRequest request;
  request.sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n LIMIT ";
  const auto limited = [&](std::size_t rows) {
    QueryRequest all = request;
    all.sql += std::to_string(rows);
    return query(all, scratch.path());
  };
  const Answer fits = limited(kMostTableRows);
  CHECK(fits.err == "");
  CHECK(fits.code == kExitDone);
  const Answer more = limited(kMostTableRows + 1);
  CHECK(more.err.find("stopped after 100000 rows") != std::string::npos);
  CHECK(more.code == kExitFailed);
  CHECK(more.out == fits.out);
}

TEST_CASE("gradmonctl query runs as a process with its options") {
  const TemporaryDirectory scratch;
  write_run(scratch.path());
  const std::string place = scratch.path().string();
  const auto rows = run_gradmonctl({"query", "--metric", "grad_reduced", "--target", "head.*", "--op", "norm",
                                    "--steps", "501:", "--rank", "3", "--format", "csv", place});
  CHECK(rows.code == kExitDone);
  CHECK(rows.out ==
        "rank,step,metric,target,vpp_stage,micro_step,op,value\n"
        "3,501,grad_reduced,head.weight,0,0,norm,501.03\n3,502,grad_reduced,head.weight,0,0,norm,502.03\n");
  const auto sql = run_gradmonctl({"query", "SELECT count(*) AS n FROM v_metrics", "--format", "json"},
                                  {"MONITOR_OUTPUT_DIR=" + place});
  CHECK(sql.code == kExitDone);
  CHECK(sql.out == "[\n {\"n\": 750}\n]\n");
  const auto nothing = run_gradmonctl({"query", "SELECT 1", place + "/none"});
  CHECK(nothing.code == kExitFailed);
  CHECK(nothing.err == "gradmonctl: " + place + "/none: No such file or directory\n");
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"query"},
                                                {"query", "--steps", "2:1"},
                                                {"query", "--steps", "x"},
                                                {"query", "SELECT 1", "--format", "xml"},
                                                {"query", "--rank", "-1"}})
    CHECK(run_gradmonctl(wrong).code == kExitUsage);
}

}  // namespace
}  // namespace gradmon
