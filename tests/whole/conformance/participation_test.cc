// SPDX-License-Identifier: Apache-2.0
// For every kind: a target that took part in a step has exactly one row for that step,
// and a target that did not has none.
#include <set>

#include "control/debian_version.h"
#include "tests/whole/conformance/every_kind.h"
#include "tests/whole/conformance/one_rank_job.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr int kSteps = 6;

Branch every_second(int step) { return step % 2 == 0 ? Branch::taken : Branch::left_out; }

bool in_branch(const std::string& name) {
  for (const char* module : {"core.", "split.", "router.", "fc2.", "all_reduce."}) {
    if (name.rfind(module, 0) == 0) return true;
  }
  return false;
}

std::set<int> steps_of(const std::vector<CsvRow>& rows, bool in_branch_only) {
  std::set<int> steps;
  for (const CsvRow& row : rows) {
    if (in_branch(row.at("name")) == in_branch_only) steps.insert(std::stoi(row.at("step")));
  }
  return steps;
}

// How many rows repeat the name, step and micro step of another row.
std::size_t duplicate_rows(const std::vector<CsvRow>& rows) {
  std::multiset<std::string> seen;
  std::size_t count = 0;
  for (const CsvRow& row : rows) {
    std::string key = row.at("name") + " " + row.at("step");
    if (row.count("micro_step") != 0) key += " " + row.at("micro_step");
    count += seen.count(key);
    seen.insert(std::move(key));
  }
  return count;
}

TEST_CASE("every kind has one row for each target that took part in a step and none for the rest") {
  OneRankJob job(kEveryKind);
  EveryKindTraining training;
  training.run(*job.monitor, kSteps, every_second);
  const std::set<int> all{0, 1, 2, 3, 4, 5}, even{0, 2, 4};
  for (const char* prefix : {"actv", "actv_grad", "grad_unreduced", "grad_reduced"}) {
    CAPTURE(prefix);
    for (const CsvRow& row : job.rows(prefix)) CHECK(row.at("name").rfind("spare.", 0) == std::string::npos);
    CHECK(steps_of(job.rows(prefix), false) == all);
    CHECK(steps_of(job.rows(prefix), true) == even);
  }
  for (const char* prefix : {"exp_avg", "exp_avg_sq"}) {  // none before the first update
    CAPTURE(prefix);
    CHECK(steps_of(job.rows(prefix), false) == std::set<int>{1, 2, 3, 4, 5});
    CHECK(steps_of(job.rows(prefix), true) == std::set<int>{2, 4});
  }
  CHECK(steps_of(job.rows("other"), false) == std::set<int>{1, 2, 3, 4, 5});
  CHECK(steps_of(job.rows("other"), true) == even);
  CHECK(steps_of(job.rows("attention_hook"), true) == even);
  CHECK(steps_of(job.rows("moe_router_logit_hook"), true) == even);
  // Weights have rows whether or not they are used.
  for (const char* prefix : {"param_origin", "param_updated", "linear_hook", "moe_router_weight_hook"}) {
    CAPTURE(prefix);
    CHECK(steps_of(job.rows(prefix), true) == all);
  }
  for (const char* prefix : {"actv", "actv_grad", "grad_unreduced", "grad_reduced", "exp_avg", "exp_avg_sq",
                             "other", "attention_hook", "linear_hook", "moe_router_weight_hook",
                             "moe_router_logit_hook", "param_origin", "param_updated", "scalar"}) {
    CAPTURE(prefix);
    CHECK(!job.rows(prefix).empty());
    CHECK(duplicate_rows(job.rows(prefix)) == 0);
  }
}

}  // namespace
}  // namespace gradmon
