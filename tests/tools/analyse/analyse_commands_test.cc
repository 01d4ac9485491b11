// SPDX-License-Identifier: Apache-2.0
// What the commands print, for jobs with a known fault.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "control/debian_version.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/analyse/rank_writer.h"
#include "tests/tools/run_command.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Json = nlohmann::json;

// A job of two ranks: a spike on rank 1 in step 4, a NaN on rank 0 from step 8 on, a layer that dies in
// step 6.
void write_job(const TemporaryDirectory& output, double spike = 512) {
  for (int rank = 0; rank < 2; ++rank) {
    RankWriter writer(output.path(), rank);
    for (int step = 0; step < 10; ++step) {
      const double loss = rank == 0 && step >= 8 ? std::nan("") : 2 - 0.1 * step;
      writer.write(step, {{Kind::actv, "layers.0.output", 1.25 + 0.125 * rank},
                          {Kind::actv, "layers.1.output", loss},
                          {Kind::grad_reduced, "layers.0.weight", step >= 6 ? 0 : 0.5},
                          {Kind::grad_reduced, "layers.1.weight", rank == 1 && step == 4 ? spike : 0.5}});
    }
  }
}

// The output without the path of the temporary directory.
std::string shown(std::string text, const TemporaryDirectory& output) {
  const std::string path = output.path().string();
  for (std::size_t at = text.find(path); at != std::string::npos; at = text.find(path, at))
    text.replace(at, path.size(), "OUT");
  return text;
}

TEST_CASE("with --flight the files of the flight recorder are read instead of the collected ones") {
  const TemporaryDirectory output;
  write_job(output);
  const std::string run = output.path().string();
  const CommandResult without = run_analyse({"top", run, "--flight"});
  CHECK(without.code == kExitFailed);
  CHECK(without.err.find("no rank of run 1a2b3c4d, started Nov24_12-04-37, ranks 0, 1 has files of a flight "
                         "recorder; expected a directory flight") != std::string::npos);
  const auto flight = RankWriter(output.path(), 1).directory() / "flight";
  std::filesystem::create_directory(flight);
  std::ofstream(flight / "grad_reduced_0-999.csv")
      << "vpp_stage,name,step,norm,nans,shape,dtype\n0,fc.weight,7,1.0,0,\"[2, 2]\",torch.float32\n"
         "0,fc.weight,8,64.0,0,\"[2, 2]\",torch.float32\n";
  const CommandResult with = run_analyse({"top", run, "--flight", "--json"});
  REQUIRE(with.code == kExitDone);
  const Json found = Json::parse(with.out);
  CHECK(found["read"]["rows"] == 2);
  CHECK(found["largest_change"][0]["layer"] == "fc.weight");
  CHECK(found["largest_change"][0]["step"] == 8);
  CHECK(found["largest_change"][0]["factor"] == 64);
  CHECK(found["largest_change"][0]["rank"] == 1);
}

TEST_CASE("the help of every command matches its golden file") {
  for (const char* command : {"first", "top", "diff", "anomalies", "plot"}) {
    const CommandResult help = run_analyse({command, "--help"});
    CHECK(help.code == kExitDone);
    CHECK(golden_difference(std::string("help_") + command + ".txt", help.err) == "");
  }
}

TEST_CASE("the text and JSON of every command match their golden files") {
  const TemporaryDirectory output, other;
  write_job(output);
  write_job(other, 256);
  const std::string a = output.path().string();
  for (const auto& [name, words] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"first", {"first", a}}, {"top", {"top", a}}, {"diff", {"diff", a, other.path().string()}}}) {
    CAPTURE(name);
    const CommandResult text = run_analyse(words);
    CHECK(text.code == (name == "diff" ? kExitFailed : kExitDone));
    CHECK(text.err == "");
    CHECK(golden_difference(name + ".txt", shown(shown(text.out, output), other)) == "");
    std::vector<std::string> for_json = words;
    for_json.emplace_back("--json");
    CHECK(golden_difference(name + ".json", shown(shown(run_analyse(for_json).out, output), other)) == "");
  }
}

TEST_CASE("what is infinite from the first step on is left out in one line whose end a screen shows") {
  const TemporaryDirectory output;
  RankWriter writer(output.path(), 0);
  for (int step = 0; step < 3; ++step) {
    std::vector<TestRow> rows;
    for (const char* layer : {"0", "1", "2", "3"})
      rows.push_back({Kind::actv, std::string("layers.") + layer + ".mask", HUGE_VAL});
    writer.write(step, rows);
  }
  for (const char* command : {"first", "top"}) {
    std::string text = run_analyse({command, output.path().string()}, Screen{40, 24}).out;
    for (std::size_t at = 0; (at = text.find("\n  ", at)) != std::string::npos;) text.replace(at, 3, " ");
    CHECK(text.find("all other values are finite") != std::string::npos);
    CHECK(text.find("left out, infinite from the first collected step on, as attention masks are: "
                    "layers.0.mask (actv), layers.1.mask (actv), layers.2.mask (actv) and 1 more\n") !=
          std::string::npos);
  }
}

TEST_CASE("top fits the screen") {
  const TemporaryDirectory output;
  RankWriter writer(output.path(), 0);
  for (int step = 0; step < 8; ++step) {
    std::vector<TestRow> rows;
    for (int layer = 0; layer < 100; ++layer) {
      const std::string name = "layers." + std::to_string(layer) + ".a_long_name_for_a_weight.of_the_layer";
      const double size = layer % 3 == 0 ? std::pow(10, step) : layer % 3 == 1 && step > 4 ? 0 : 1;
      rows.push_back({Kind::grad_reduced, name, size});
    }
    writer.write(step, rows);
  }
  const std::string text = run_analyse({"top", output.path().string()}, Screen{60, 24}).out;
  CHECK(std::count(text.begin(), text.end(), '\n') < 24);
  CHECK(text.find("exploding: 34 layers") != std::string::npos);
}

TEST_CASE("bad rows are reported on stderr with file and line and counted in the JSON") {
  const TemporaryDirectory output;
  write_job(output);
  const auto file = output.path() / "Nov24_12-04-37-rank0-1a2b3c4d" / "actv_3-3.csv";
  write_text(file, read_text(file) + "0,bad,x,0,1.0,0,,\n");
  const CommandResult result = run_analyse({"first", output.path().string(), "--json"});
  CHECK(result.code == kExitDone);
  CHECK(shown(result.err, output) ==
        "gradmonctl: OUT/Nov24_12-04-37-rank0-1a2b3c4d/actv_3-3.csv:4: found \"x\" in the column step; "
        "expected a "
        "whole number; the row is left out\n");
  CHECK(Json::parse(result.out)["left_out"]["count"] == 1);
}

TEST_CASE(
    "the default directory is MONITOR_OUTPUT_DIR and a missing one is an error that says what is expected") {
  const TemporaryDirectory output;
  write_job(output);
  setenv("MONITOR_OUTPUT_DIR", output.path().c_str(), 1);
  CHECK(run_analyse({"first"}).code == kExitDone);
  unsetenv("MONITOR_OUTPUT_DIR");
  const CommandResult missing = run_analyse({"first", (output / "none").string()});
  CHECK(missing.code == kExitFailed);
  CHECK(missing.err.find("expected the output directory of a job") != std::string::npos);
}

TEST_CASE("equal runs end with 0 and a wrong tolerance is a usage error") {
  const TemporaryDirectory output;
  write_job(output);
  const std::string place = output.path().string();
  CHECK(run_analyse({"diff", place, place}).code == kExitDone);
  CHECK(run_analyse({"diff", place, place, "--tolerance", "-1"}).code == kExitUsage);
  CHECK(run_analyse({"diff", place, place, "--absolute", "x"}).code == kExitUsage);
}

TEST_CASE("anomalies writes the file of msprobe's processor") {
  const TemporaryDirectory output;
  std::filesystem::create_directories(output / "rank0");
  std::filesystem::create_directory(output / "to");
  write_text(
      output / "rank0/anomaly.json",
      R"({"k1": {"step": 5, "tag_name": "a/actv", "message": "five"}, "k2": {"step": 3, "tag_name": "a/actv", "message": "three"}})");
  const std::string place = output.path().string();
  const CommandResult result = run_analyse({"anomalies", "-d", place});
  CHECK(result.code == kExitDone);
  CHECK(shown(result.out, output) ==
        "the first 2 of 2 anomalies, in OUT/anomaly_analyse.json:\n0: three\n1: five\n");
  CHECK(Json::parse(read_text(output / "anomaly_analyse.json"))["k2"]["step"] == 3);
  CHECK(run_analyse({"anomalies", "--data_path", place, "--out-path", (output / "to").string(), "--topk", "1",
                     "--step_list", "[5, 9]", "--json"})
            .code == kExitDone);
  CHECK(Json::parse(read_text(output / "to/anomaly_analyse.json")).size() == 1);
  for (const char* steps : {"[5", "5]", "[x]", "[1,,2]", ",", "[[1]]"})
    CHECK(run_analyse({"anomalies", "-d", place, "-s", steps}).code == kExitUsage);
  CHECK(run_analyse({"anomalies", "-d", place, "-k", "0"}).code == kExitUsage);
  CHECK(run_analyse({"anomalies", "-d", (output / "to").string()}).code == kExitFailed);
}

TEST_CASE("anomalies without a dump names the key that makes one and the command that needs none") {
  const TemporaryDirectory output;
  const std::string place = output.path().string();
  const CommandResult result = run_analyse({"anomalies", place});
  CHECK(result.code == kExitFailed);
  CHECK(shown(result.err, output) ==
        "gradmonctl: OUT: no dump of alerts in it; expected the directory anomaly_detected of a job, with "
        "rank0/anomaly.json, which alerts write with \"dump\": true in the config's \"alert\"; without it, "
        "gradmonctl alerts OUT lists them\n");
}

TEST_CASE("plot writes an SVG and says what there is if a kind is missing") {
  const TemporaryDirectory output;
  write_job(output);
  const std::string place = output.path().string();
  const std::string file = (output / "map.svg").string();
  const CommandResult result = run_analyse({"plot", place, "-o", file, "--metric", "actv"});
  CHECK(result.code == kExitDone);
  CHECK(result.out == "");
  CHECK(read_text(file).find("#d62728") != std::string::npos);
  CHECK(run_analyse({"plot", place, "-o", file, "--metric", "exp_avg"})
            .err.find("there are: actv, grad_reduced") != std::string::npos);
  CHECK(run_analyse({"plot", place, "-o", file, "--op", "max"}).err.find("it has norm, nans") !=
        std::string::npos);
  CHECK(run_analyse({"plot", place, "-o", file, "--target", "x"}).code == kExitFailed);
  CHECK(run_analyse({"plot", place, "-o", file, "--rank", "9"}).code == kExitFailed);
  CHECK(run_analyse({"plot", place, "-o", "map.pdf"}).code == kExitUsage);
  CHECK(Json::parse(run_analyse({"plot", place, "-o", file, "--json"}).out)["rows"] == 2);
}

}  // namespace
}  // namespace gradmon
