// SPDX-License-Identifier: Apache-2.0
// That the status tells the truth: what is wrong while it is, and no longer.
#include <sys/stat.h>

#include <algorithm>

#include "tests/control/hub/service/served_job.h"

namespace gradmon {
namespace {

bool warns(const ServedJob& job, const std::string& beginning) {
  const Status status = job.status();
  return std::any_of(status.warnings.begin(), status.warnings.end(),
                     [&](const std::string& line) { return line.rfind(beginning, 0) == 0; });
}

long told(const ServedJob& job, const std::string& line) {
  return std::count(job.told.begin(), job.told.end(), line);
}

TEST_CASE("a disk that does not answer is named with its time, and logged as it begins and ends") {
  ServedJob job(kOff);
  for (const bool of_config : {true, false}) {
    const std::string place =
        of_config ? "config " + job.path.string() : "output directory " + job.output.string();
    const std::string silent = place + ": no answer from the disk";
    {
      const ServedJob::Hung hung(of_config ? job.config_disk : job.run_disk);
      REQUIRE(job.until([&] { return warns(job, silent + " for 3 s"); }));
      CHECK(told(job, silent) == 1);
    }
    CHECK(job.until([&] { return !warns(job, silent); }));
    CHECK(job.until([&] { return told(job, "resolved: " + silent) == 1; }));
  }
}

TEST_CASE("a refused edit stands in the first line and is the last error until a good one comes") {
  ServedJob job(kOff);
  write_text(job.path, R"({"dynamic_on": tru})");
  REQUIRE(job.until([&] { return job.status().last_error.has_value(); }));
  CHECK(job.status().reason.rfind("the newest edit is refused: " + job.path.string() + ":1:", 0) == 0);
  write_text(job.path, kOff);
  CHECK(job.until([&] { return !job.status().last_error; }));
  CHECK(job.status().reason == "never turned on");
}

TEST_CASE("a write-back that failed is the last error until it has succeeded") {
  ServedJob job(R"({"dynamic_on": true, "collect_times": 2})");
  REQUIRE(::chmod(job.path.c_str(), 0444) == 0);
  REQUIRE(job.until([&] { return job.status().last_error.has_value(); }));
  REQUIRE(::chmod(job.path.c_str(), 0644) == 0);
  CHECK(job.until([&] { return !job.status().last_error; }));
}

TEST_CASE("a job has finished when all its ranks have, and who has not is named") {
  ServedJob job(kOff, 2, 2);
  Command on = ServedJob::command(CommandVerb::on, "on");
  on.collect_times = 200;
  REQUIRE(job.ask(on).outcome == CommandOutcome::done);
  REQUIRE(job.until_state("on"));
  job.ranks[1]->stands = true;
  REQUIRE(job.until([&] { return job.status().reason == "waiting for rank 1 to finish"; }));
  CHECK(job.status().state == "on");
  job.ranks[1]->stands = false;
  CHECK(job.until([&] { return job.status().reason == "finished"; }));
  CHECK(job.status().state == "off");
}

TEST_CASE("two jobs with one config name each other, and neither obeys what the other writes by itself") {
  ServedJob one(kOff);
  ServedJob two(kOff, 1, 1, true, &one);
  const auto both = [&](const std::function<bool()>& condition) {
    return one.until([&] {
      two.turn();
      return condition();
    });
  };
  const std::string config = "config " + one.path.string() + " is used by another job, too: job ";
  REQUIRE(both([&] { return warns(one, config + "second") && warns(two, config + "launch"); }));
  write_text(one.path, R"({"dynamic_on": true, "collect_times": 400})");
  REQUIRE(both([&] { return one.status().state == "on" && two.status().state == "on"; }));
  two.ranks[0]->stands = true;
  REQUIRE(both([&] { return read_text(one.path) == R"({"dynamic_on": false, "collect_times": 400})"; }));
  REQUIRE(both([&] {
    return told(two, one.path.string() + " was written by job launch on " + host_name() +
                         ", not by the user: ignored") == 1;
  }));
  two.turns(Ticks{2'000});
  CHECK(two.status().state == "on");
  two.ranks[0]->stands = false;
  CHECK(both([&] { return two.status().reason == "finished"; }));
  CHECK(two.ranks[0]->collected.size() == 400);
}

}  // namespace
}  // namespace gradmon
