// SPDX-License-Identifier: Apache-2.0
#include "control/text/output_names.h"

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

TEST_CASE("the name of a rank's directory is read") {
  const auto name = parse_rank_directory("Nov24_12-04-37-rank13-1a2b3c4d");
  REQUIRE(name);
  CHECK(name->time == "Nov24_12-04-37");
  CHECK(name->rank == 13);
  CHECK(name->id == "1a2b3c4d");
  for (const char* other :
       {"", "Nov24_12-04-37-rank-1a2b3c4d", "Nov24_12-04-37-rank1", "Nov24_12-04-37-rank1-",
        "Foo24_12-04-37-rank1-1a", "Nov24_12-04-rank1-1a2b3c4d", "Nov00_12-04-37-rank1-1a",
        "Nov24_25-04-37-rank1-1a", "Nov24_12-04-37-rank99999999999-1a", "anomaly_detected"})
    CHECK(!parse_rank_directory(other));
}

TEST_CASE("the name of a rank's directory is read as it was written") {
  const std::string name = rank_directory_name("Nov24_12-04-37", 13, "1a2b3c4d");
  CHECK(name == "Nov24_12-04-37-rank13-1a2b3c4d");
  const auto read = parse_rank_directory(name);
  REQUIRE(read);
  CHECK(rank_directory_name(read->time, read->rank, read->id) == name);
  CHECK(is_run_id(read->id));
  for (const char* other : {"", "5e6f", "1a2b3c4d5", "1A2B3C4D", "1a2b3c4x"}) CHECK_FALSE(is_run_id(other));
}

TEST_CASE("the name of a kind's file is read") {
  const auto name = parse_kind_file("exp_avg_sq_100-199.r7.csv");
  REQUIRE(name);
  CHECK(name->kind == Kind::exp_avg_sq);
  CHECK(name->first_step == 100);
  CHECK(name->last_step == 199);
  CHECK(name->revision == 7);
  CHECK(parse_kind_file("actv_grad_0-0.csv")->kind == Kind::actv_grad);
  for (const char* other :
       {"", "stack_info.csv", ".actv_0-0.csv.new", "actv_0-0.csv.new", "actv_0.csv", "actv_2-1.csv",
        "actv_0-0.r.csv", "actv_0-99999999999999999999.csv", "actv_0-0.csv.gz"})
    CHECK(!parse_kind_file(other));
}

TEST_CASE("the id of a run is read from the name of its file") {
  CHECK(id_of_run_file("run-1a2b3c4d.json") == "1a2b3c4d");
  for (const char* other : {"", "run-.json", "run-1a2b3c4d", "run-1a2b3c4d.json.new", "arun-1a2b3c4d.json"})
    CHECK(id_of_run_file(other).empty());
}

}  // namespace
}  // namespace gradmon
