// SPDX-License-Identifier: Apache-2.0
// What the commands make of a job, and of wrong options.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "control/debian_version.h"
#include "tests/support/golden.h"
#include "tests/tools/convert/sample_job.h"
#include "tests/tools/run_command.h"
#include "tests/writers/sinks/event_reader.h"
#include "tests/writers/sinks/metrics_database.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;

// "rank0/actv vp0:fc1.input:micro0/norm 0 6.5", of all directories of event files.
std::string curves_in(const fs::path& output) {
  std::set<std::string> lines;
  for (const auto& entry : fs::recursive_directory_iterator(output)) {
    if (!entry.is_directory() || event_files_in(entry.path()).empty()) continue;
    for (const Point& point : points_in(entry.path())) {
      std::ostringstream line;
      line << fs::relative(entry.path(), output).string() << ' ' << point.tag << ' ' << point.step << ' '
           << point.value << '\n';
      lines.insert(line.str());
    }
  }
  std::string all;
  for (const std::string& line : lines) all += line;
  return all;
}

std::string joined(const TextRows& rows) {
  std::string all;
  for (const std::string& row : rows) all += row + '\n';
  return all;
}

std::string content_of(const fs::path& database) {
  std::string text;
  for (const char* query :
       {"SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name",
        "SELECT * FROM monitoring_targets ORDER BY target_id",
        "SELECT * FROM monitoring_metrics ORDER BY metric_id", "SELECT * FROM metric_stats ORDER BY 1, 2",
        "SELECT * FROM global_stats ORDER BY 1",
        "SELECT * FROM target_tensors ORDER BY metric_id, target_id, rank",
        "SELECT * FROM v_metrics ORDER BY rank, metric, step, target, micro_step, op"})
    text += std::string("-- ") + query + '\n' + joined(query_rows(database, query));
  return text;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("the help of the conversions matches its golden files") {
  for (const char* command : {"csv2tb", "csv2db", "merge"}) {
    const CommandResult help = run_convert({command, "--help"});
    CHECK(help.code == kExitDone);
    CHECK(golden_difference(std::string("help_") + command + ".txt", help.err) == "");
  }
}

TEST_CASE("csv2db has the scopes of scopes.json") {
  const SampleJob job;
  job.write(SampleJob::kRank3, "scopes.json",
            R"({"format": 1, "targets": {"0:layers.0.fc.weight": {"grad_reduced": {"scope":"replica"}}}})");
  const TemporaryDirectory place;
  REQUIRE(run_convert(
              {"csv2db", "--monitor-path", job.path().string(), "--output-dirpath", (place / "db").string()})
              .code == kExitDone);
  CHECK(query_rows(place / "db" / kMetricsFileName,
                   "SELECT target_name, rank, scope, detail FROM target_scope JOIN monitoring_targets USING "
                   "(target_id)") == TextRows{R"(layers.0.fc.weight|3|replica|{"scope":"replica"})"});
}

// A minute is a hundred times what it takes; a look through all targets for each took hours.
TEST_CASE("a scopes.json of two hundred thousand targets is read in time") {
  const SampleJob job;
  std::string text = R"({"format": 1, "targets": {)";
  for (int i = 0; i < 200'000; ++i)
    text += "\"0:layers." + std::to_string(i) + R"(.fc.weight": {"grad_reduced": {"scope": "whole"}}, )";
  job.write(SampleJob::kRank0, "scopes.json", text + "\"0:last\": {}}}");
  const TemporaryDirectory place;
  const auto begun = std::chrono::steady_clock::now();
  REQUIRE(run_convert(
              {"csv2db", "--monitor-path", job.path().string(), "--output-dirpath", (place / "db").string()})
              .code == kExitDone);
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::minutes(1));
  CHECK(query_integer(place / "db" / kMetricsFileName, "SELECT count(*) FROM target_scope") == 1);
}

TEST_CASE("csv2tb makes the directories and curves that its golden file lists, with any number of threads") {
  const SampleJob job;
  const auto [threads, tags] = GENERATE(table<std::string, std::string>(
      {{"1", "gradmon"}, {"8", "gradmon"}, {"1", "msprobe"}, {"8", "msprobe"}}));
  {
    const TemporaryDirectory place;
    const fs::path output = place / "curves";
    const auto result = run_convert({"csv2tb", "--monitor-path", job.path().string(), "--output-dirpath",
                                     output.string(), "--process-num", threads, "--tags", tags});
    CHECK(result.err == "");
    REQUIRE(result.code == kExitDone);
    CHECK(result.out ==
          "11 rows of ranks 0, 3 in " + output.string() + "\n" +
              "1 rows are left out, of steps that a later start of the job has collected again\n");
    CHECK(golden_difference(tags == "msprobe" ? "csv2tb_msprobe.txt" : "csv2tb.txt", curves_in(output)) ==
          "");
    CHECK(names_in(place.path()) == std::vector<std::string>{"curves"});
  }
}

TEST_CASE("csv2db makes the tables and rows that its golden file lists, with any number of threads") {
  const SampleJob job;
  for (const char* threads : {"1", "8"}) {
    const TemporaryDirectory place;
    const fs::path output = place / "db";
    const auto result = run_convert({"csv2db", "--monitor_path", job.path().string(), "--output_dirpath",
                                     output.string(), "--process_num", threads, "--step_partition", "10"});
    CHECK(result.err == "");
    REQUIRE(result.code == kExitDone);
    CHECK(golden_difference("csv2db.txt", content_of(output / kMetricsFileName)) == "");
    CHECK(integrity_error(output / kMetricsFileName) == "");
    CHECK(names_in(output) == std::vector<std::string>{kMetricsFileName});
  }
}

TEST_CASE("a time range is closed and None has no limit") {
  const SampleJob job;
  const auto ranks_of = [&](const std::string& from, const std::string& to) {
    const TemporaryDirectory place;
    const auto result =
        run_convert({"csv2tb", "--monitor-path", job.path().string(), "--time-start", from, "--time-end", to,
                     "--output-dir", (place / "x").string(), "--data-type", "['actv', 'grad_reduced']"});
    return result.code == kExitDone ? result.out.substr(0, result.out.find(" in ")) : result.err;
  };
  CHECK(ranks_of("Nov24_12-04-37", "Nov24_12-04-37") == "7 rows of ranks 0, 3");
  CHECK(ranks_of("Dec03_21-34-40", "None") == "1 rows of rank 0");
  CHECK(ranks_of("None", "Dec03_21-34-39") == "7 rows of ranks 0, 3");
  CHECK(ranks_of("Dec03_21-34-41", "None") ==
        "gradmonctl: " + job.path().string() +
            ": none of 3 directories of ranks is in the time range; expected one as " + SampleJob::kRank0 +
            "\n");
}

TEST_CASE("wrong options are named with what was expected") {
  const auto error_of = [](std::vector<std::string> words) {
    words.insert(words.begin(), "csv2db");
    const CommandResult result = run_convert(words);
    CHECK(result.code == kExitUsage);
    return result.err.substr(0, result.err.find('\n'));
  };
  CHECK(
      error_of({"--data-type-list", "actv", "grad"}) ==
      "gradmonctl: --data-type-list: found \"grad\"; expected actv, actv_grad, grad_unreduced, grad_reduced, "
      "exp_avg, exp_avg_sq, param_origin, param_updated, attention_hook, linear_hook, other, "
      "moe_router_weight_hook, moe_router_logit_hook, scalar");
  CHECK(error_of({"--time-start", "Dec3"}) ==
        "gradmonctl: --time-start: found \"Dec3\"; expected a time as in the names of directories, such as "
        "Dec03_21-34-40, or None");
  CHECK(error_of({"--time-start", "Dec03_21-34-40", "--time-end", "Dec03_21-34-39"}) ==
        "gradmonctl: --time-start Dec03_21-34-40 is later than --time-end Dec03_21-34-39; expected a time "
        "before it");
  CHECK(error_of({"--process-num", "0"}).find("--process-num") != std::string::npos);
  CHECK(error_of({"--process-num", "129"}).find("--process-num") != std::string::npos);
  CHECK(error_of({"--step-partition", "9"}).find("--step-partition") != std::string::npos);
}

TEST_CASE("without --output-dirpath curves go beside the job's output directory") {
  const SampleJob job;
  const TemporaryDirectory place;
  fs::rename(job.path(), place / "out");
  const fs::path rank = fs::directory_iterator(place / "out")->path();
  for (const fs::path& input : {place / "out", place / "out/", rank}) {
    REQUIRE(run_convert({"csv2tb", "--monitor-path", input.string()}).code == kExitDone);
    int curves = 0;
    for (const std::string& name : names_in(place.path())) {
      if (name.find("_csv2tensorboard_by_step") != 14) continue;
      curves += 1;
      fs::remove_all(place / name);
    }
    CHECK(curves == 1);
  }
  fs::rename(place / "out", job.path());
}

TEST_CASE("without --output-dirpath msprobe's curves and the database go to a new directory in the input") {
  const SampleJob job;
  REQUIRE(run_convert({"csv2tb", "--tags", "msprobe", "--monitor-path", job.path().string()}).code ==
          kExitDone);
  REQUIRE(run_convert({"csv2db", "--monitor-path", job.path().string() + "/"}).code == kExitDone);
  int curves = 0, databases = 0;
  for (const std::string& name : names_in(job.path())) {
    if (name.find("_csv2tensorboard_by_step") == 14)
      curves += fs::exists(job.path() / name / "rank0") ? 1 : 0;
    if (name.find("_csv2db") == 14) databases += fs::exists(job.path() / name / kMetricsFileName) ? 1 : 0;
  }
  CHECK(curves == 1);
  CHECK(databases == 1);
  // What was made is no input.
  CHECK(run_convert({"csv2db", "--monitor-path", job.path().string(), "--output-dir",
                     (job.path() / "again").string()})
            .out.substr(0, 8) == "11 rows ");
}

TEST_CASE("events of csv2tb have the time at which their CSV file was last written") {
  const SampleJob job;
  const auto written = [&](const char* directory, const char* file, int seconds) {
    const timespec time{1'700'000'000 + seconds, 250'000'000};
    const timespec times[] = {time, time};
    REQUIRE(::utimensat(AT_FDCWD, (job.path() / directory / file).c_str(), times, 0) == 0);
  };
  written(SampleJob::kRank0, "actv_0-0.csv", 0);
  written(SampleJob::kMsprobe, "actv_0-0.csv", 10);
  written(SampleJob::kRank0, "scalar_0-0.csv", 20);
  const auto tags = GENERATE("gradmon", "msprobe");
  const TemporaryDirectory place;
  const fs::path output = place / "curves";
  REQUIRE(run_convert({"csv2tb", job.path().string(), "--output-dirpath", output.string(), "--tags", tags})
              .code == kExitDone);
  const auto times_of = [&](const char* kind) {
    std::map<std::int64_t, std::set<double>> times;  // by step
    for (const fs::path& file : event_files_in(output / "rank0" / kind)) {
      for (const tensorboard::Event& event : parse_events(read_text(file)).events) {
        if (event.has_summary()) times[event.step()].insert(event.wall_time() - 1'700'000'000);
      }
    }
    return times;
  };
  using Times = std::map<std::int64_t, std::set<double>>;
  CHECK(times_of("actv") == Times{{0, {0.25}}, {1, {10.25}}});
  CHECK(times_of("scalar").at(0) == std::set<double>{20.25});
}

TEST_CASE("csv2tb replaces the curves that it makes again and leaves all else in its directory") {
  const SampleJob job;
  const TemporaryDirectory place;
  const std::vector<std::string> csv2tb = {"csv2tb", "--monitor-path", job.path().string(),
                                           "--output-dirpath", place.path().string()};
  write_text(place / "notes", "mine");
  for (const char* directory : {"rank0/actv", "rank0/exp_avg", "rank7/actv"}) {
    fs::create_directories(place / directory);
    write_text(place / directory / "events.out.tfevents.1.host.1", "old");
  }
  const auto first = run_convert(csv2tb);
  REQUIRE(first.code == kExitDone);
  CHECK(first.out.find("1 files or directories of an earlier conversion are replaced\n") !=
        std::string::npos);
  CHECK(read_text(place / "notes") == "mine");
  for (const char* directory : {"rank0/exp_avg", "rank7/actv"}) {
    CHECK(names_in(place / directory) == std::vector<std::string>{"events.out.tfevents.1.host.1"});
    fs::remove_all(place / directory);
  }
  CHECK(run_convert(csv2tb).code == kExitDone);
  CHECK(golden_difference("csv2tb.txt", curves_in(place.path())) == "");
}

TEST_CASE("csv2tb leaves all as it is where a directory that it would replace has other files") {
  const SampleJob job;
  for (const char* const in_the_way : {"rank0/other/notes", "rank3/grad_reduced"}) {
    const TemporaryDirectory place;
    fs::create_directories((place / in_the_way).parent_path());
    write_text(place / in_the_way, "mine");
    const auto result = run_convert(
        {"csv2tb", "--monitor-path", job.path().string(), "--output-dirpath", place.path().string()});
    CHECK(result.code == kExitFailed);
    CHECK(result.err.find((place / in_the_way).string() + " is ") != std::string::npos);
    std::size_t entries = 0;
    for (const auto& entry : fs::recursive_directory_iterator(place.path()))
      entries += entry.is_directory() ? 0 : 1;
    CHECK(entries == 1);
    CHECK(read_text(place / in_the_way) == "mine");
  }
}

TEST_CASE("csv2db replaces the database of an earlier conversion and no other file") {
  const SampleJob job;
  const TemporaryDirectory place;
  write_text(place / "notes", "mine");
  const std::vector<std::string> csv2db = {"csv2db", "--monitor-path", job.path().string(),
                                           "--output-dirpath", place.path().string()};
  REQUIRE(run_convert(csv2db).code == kExitDone);
  job.write(SampleJob::kRank3, "exp_avg_0-0.csv", "vpp_stage,name,step,norm,shape,dtype\n0,a,0,1,[2],\n");
  const auto again = run_convert(csv2db);
  CHECK(again.code == kExitDone);
  CHECK(again.out.find("1 files or directories of an earlier conversion are replaced\n") !=
        std::string::npos);
  CHECK(stored_rows(place / kMetricsFileName) == 12);
  CHECK(names_in(place.path()) == std::vector<std::string>{kMetricsFileName, "notes"});
}

TEST_CASE("csv2db does not replace the database of a job or one that is in use") {
  const SampleJob job;
  const fs::path run = job.path() / SampleJob::kRank0;
  const TemporaryDirectory place;
  write_text(place / (std::string(kMetricsFileName) + "-wal"), "rows");
  for (const fs::path& directory : {run, run / "", place.path()}) {
    write_text(directory / kMetricsFileName, "mine");
    const auto result = run_convert(
        {"csv2db", "--monitor-path", job.path().string(), "--output-dirpath", directory.string()});
    CHECK(result.code == kExitFailed);
    CHECK(result.err == "gradmonctl: " + (directory / kMetricsFileName).string() +
                            " is the database of a job, or in use; expected another --output-dirpath\n");
    CHECK(read_text(directory / kMetricsFileName) == "mine");
  }
}

TEST_CASE("merge overwrites nothing") {
  const SampleJob job;
  const TemporaryDirectory place;
  write_text(place / "job.db", "mine");
  const auto result = run_convert({"merge", job.path().string(), "-o", (place / "job.db").string()});
  CHECK(result.code == kExitFailed);
  CHECK(result.err == "gradmonctl: " + (place / "job.db").string() +
                          " is there already; expected a new name or an empty directory\n");
  CHECK(read_text(place / "job.db") == "mine");
}

TEST_CASE("bad rows are reported with file and line, and the good rows are converted") {
  const SampleJob job;
  job.write(SampleJob::kRank3, "exp_avg_0-0.csv",
            "vpp_stage,name,step,norm,shape,dtype\n0,a,0,1,[2],\n0,b,0,much,[2],\n0,c,0\n0,a,0,2,[2],\n0,d,1,"
            "4,[2],\n");
  const std::string file = (job.path() / SampleJob::kRank3 / "exp_avg_0-0.csv").string();
  const std::string expected =
      "gradmonctl: " + file +
      ":3: found \"much\" in the column norm; expected a number; the row is left out\n" +
      "gradmonctl: " + file + ":4: found 3 cells; expected 6 as in the header; the row is left out\n" +
      "gradmonctl: " + file +
      ":5: found a second row of \"a\" in step 0; expected one; the row is left out\n";
  for (const char* command : {"csv2tb", "csv2db"}) {
    const TemporaryDirectory place;
    const auto result = run_convert({command, "--monitor-path", job.path().string(), "--data-type-list",
                                     "exp_avg", "--output-dirpath", (place / "x").string()});
    CHECK(result.code == kExitDone);
    CHECK(result.err == expected);
    CHECK(result.out.substr(0, 17) == "2 rows of ranks 0");
  }
}

TEST_CASE("an input without rows makes no output") {
  const TemporaryDirectory output, place;
  fs::create_directory(output / SampleJob::kRank0);
  write_text(output / SampleJob::kRank0 / "actv_0-0.csv", "vpp_stage,name,step,norm\n");
  for (const char* command : {"csv2tb", "csv2db"}) {
    const auto result = run_convert(
        {command, "--monitor-path", output.path().string(), "--output-dirpath", (place / "x").string()});
    CHECK(result.code == kExitFailed);
    CHECK(result.err.find("found no rows in ") != std::string::npos);
    CHECK(names_in(place.path()).empty());
  }
}

}  // namespace gradmon
