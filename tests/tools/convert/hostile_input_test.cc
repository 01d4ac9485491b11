// SPDX-License-Identifier: Apache-2.0
// A thousand broken files: every conversion keeps what is good in them and reports the rest.
#include <random>

#include "control/debian_version.h"
#include "tests/tools/broken_text.h"
#include "tests/tools/convert/sample_job.h"
#include "tests/tools/run_command.h"
#include "tests/writers/sinks/event_reader.h"
#include "tests/writers/sinks/metrics_database.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr int kFiles = 1000;

const std::string kGood =
    "vpp_stage,name,step,micro_step,norm,nans,shape,dtype\n"
    "0,fc1.input,0,0,1.5,0,\"[2, 2]\",torch.float32\n"
    "0,\"a,b\",0,0,nan,1,\"[2, 2]\",torch.float32\n"
    "3,\"two\nlines\",0,1,-inf,0,[],torch.bfloat16\n";

void write_broken_job(const TemporaryDirectory& output) {
  std::mt19937 random(17);
  const auto directory = output / SampleJob::kRank0;
  std::filesystem::create_directory(directory);
  for (int number = 0; number < kFiles; ++number)
    write_text(directory / (std::string(kKindNames[static_cast<std::size_t>(number) % kKinds]) + "_" +
                            std::to_string(number % 37) + "-99.r" + std::to_string(number + 1) + ".csv"),
               broken_text(number, kGood, random));
  write_text(directory / "actv_grad_0-0.csv", kGood);
  write_text(output / "run-1a2b3c4d.json", "{\"format\": [[[");
}

TEST_CASE("a thousand truncated and mixed and empty and hostile files give event files that can be read") {
  const TemporaryDirectory output, place;
  write_broken_job(output);
  const auto result = run_convert({"csv2tb", "--monitor-path", output.path().string(), "--output-dirpath",
                                   (place / "x").string(), "--process-num", "3"});
  CHECK(result.code == kExitDone);
  CHECK(result.err.find(" more rows or files are left out") != std::string::npos);
  CHECK(result.err.find('\x1b') == std::string::npos);
  std::size_t points = 0;
  for (const char* kind : kKindNames) points += points_in(place / "x/rank0" / kind).size();
  CHECK(points > 500);
  const Point good{"actv_grad_nans/3:two\nlines:micro1", 0, 0};
  const auto all = points_in(place / "x/rank0/actv_grad");
  CHECK(std::count(all.begin(), all.end(), good) == 1);
}

TEST_CASE("a thousand truncated and mixed and empty and hostile files give a sound database") {
  const TemporaryDirectory output, place;
  write_broken_job(output);
  const auto result = run_convert({"csv2db", "--monitor-path", output.path().string(), "--output-dirpath",
                                   (place / "x").string(), "--process-num", "3"});
  CHECK(result.code == kExitDone);
  CHECK(result.err.find(" more rows or files are left out") != std::string::npos);
  const auto database = place / "x/monitor_metrics.db";
  CHECK(integrity_error(database) == "");
  CHECK(query_integer(database, "SELECT count(*) FROM v_metrics") > 500);
  CHECK(
      query_rows(database,
                 "SELECT op, value FROM v_metrics WHERE metric = 'actv_grad' AND vpp_stage = 3 AND step = 0 "
                 "AND target = 'two' || char(10) || 'lines' AND micro_step = 1 ORDER BY op") ==
      TextRows{"nans|0.0", "norm|-inf"});
}

}  // namespace
}  // namespace gradmon
