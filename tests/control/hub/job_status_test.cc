// SPDX-License-Identifier: Apache-2.0
// The status names a problem as long as it lasts, and no longer.

#include "tests/control/hub/served_job.h"

namespace gradmon {
namespace {

TEST_CASE("a disk that does not answer is in the status and its begin and end are in the log") {
  ServedJob job(kOff);
  for (const bool of_config : {true, false}) {
    const std::string place =
        of_config ? "config " + job.path.string() : "output directory " + job.output.string();
    const std::string silent = place + ": no answer from the disk";
    {
      const ServedJob::BlockedDisk blocked(of_config ? job.config_disk : job.run_disk);
      REQUIRE(job.until([&] { return job.times_logged(silent) == 1; }));
      CHECK(job.warns(silent + " for "));
    }
    CHECK(job.until([&] { return !job.warns(silent); }));
    CHECK(job.until([&] { return job.times_logged("resolved: " + silent) == 1; }));
  }
}

TEST_CASE("a refused edit is the reason and the last error in the status until a valid edit") {
  ServedJob job(kOff);
  write_text(job.path, R"({"dynamic_on": tru})");
  REQUIRE(job.until([&] { return job.status().last_error.has_value(); }));
  CHECK(job.status().reason.rfind("the newest edit is refused: " + job.path.string() + ":1:", 0) == 0);
  write_text(job.path, kOff);
  CHECK(job.until([&] { return !job.status().last_error; }));
  CHECK(job.status().reason == "never turned on");
}

TEST_CASE("a job that starts with dynamic_on false says so, and whether an earlier job wrote it back") {
  const auto starts_off = [](const ServedJob& job, const std::string& why) {
    return job.times_logged("off: " + why + " (true in " + job.path.string() +
                            ", or gradmonctl on, starts collecting)") == 1;
  };
  ServedJob first(R"({"dynamic_on": false, "wg_distribution": true, "collect_times": 2})");
  CHECK(first.until([&] { return starts_off(first, "dynamic_on is false"); }));
  CHECK(first.status().reason == "never turned on");
  REQUIRE(first.ask(CommandVerb::on, "on").outcome == CommandOutcome::done);
  REQUIRE(first.until([&] { return first.status().reason == "finished"; }));
  REQUIRE(
      first.until([&] { return read_text(first.path).find("\"dynamic_on\": false") != std::string::npos; }));
  const std::string last = std::to_string(first.history().back().finished_step);
  first.service->close();
  first.run_disk.drain(std::chrono::seconds(10));
  ServedJob second("", 1, 1, true, &first);
  const std::string why =
      "dynamic_on is false: an earlier job wrote it back when its collection ended with step " + last;
  CHECK(second.until([&] { return starts_off(second, why); }));
  CHECK(second.status().reason == why);
}

TEST_CASE("the reason of a refused change goes when the user no longer asks for it") {
  ServedJob job(kOff);
  REQUIRE(job.until([&] { return job.status().reason == "never turned on"; }));
  job.ranks[0]->matches = 0;
  job.ask(CommandVerb::on, "on");
  REQUIRE(job.until([&] { return job.status().reason == "no target matches on any rank"; }));
  SECTION("by a save") {
    write_text(job.path, kOff + "\n");
    CHECK(job.until([&] { return job.status().reason == "never turned on"; }));
  }
  SECTION("by a command") {
    job.ask(CommandVerb::off, "off");
    CHECK(job.status().reason == "never turned on");
  }
}

TEST_CASE("the status of a job in static mode tells its steps") {
  ServedJob job(R"({"dynamic_on": false, "wg_distribution": true, "start_step": 3, "collect_times": 2})", 1,
                1, false);
  REQUIRE(job.until([&] { return job.status().ranks[0].step > 0; }));
  const Status status = job.status();
  CHECK(status.effective_step == 3);
  CHECK(status.collect_times == 2);
  CHECK(job.until([&] { return job.status().reason == "finished" && job.status().collected == 2; }));
}

TEST_CASE("a job has finished when all its ranks have and the status names those that have not") {
  ServedJob job(kOff, 2, 2);
  Command on = ServedJob::command(CommandVerb::on, "on");
  on.collect_times = 200;
  REQUIRE(job.ask(on).outcome == CommandOutcome::done);
  REQUIRE(job.until_state("on"));
  job.ranks[1]->trainer_hangs = true;
  REQUIRE(job.until([&] { return job.status().reason.rfind("waiting for rank 1 to finish", 0) == 0; }));
  CHECK(job.status().state == "on");
  job.ranks[1]->trainer_hangs = false;
  CHECK(job.until([&] { return job.status().reason.rfind("finished", 0) == 0; }));
  CHECK(job.status().state == "off");
}

TEST_CASE("two jobs with one config name each other and ignore each other's write-backs") {
  const bool launch_ends_first = GENERATE(true, false);
  ServedJob one(kOff);
  ServedJob two(kOff, 1, 1, true, &one);
  ServedJob& late = launch_ends_first ? two : one;
  const std::string writer = launch_ends_first ? "launch" : "second";
  const auto both = [&](const std::function<bool()>& condition) {
    return one.until([&] {
      two.turn();
      return condition();
    });
  };
  const std::string config = "config " + one.path.string() + " is used by another job, too: job ";
  REQUIRE(both([&] { return one.warns(config + "second") && two.warns(config + "launch"); }));
  write_text(one.path, R"({"dynamic_on": true, "collect_times": 400})");
  REQUIRE(both([&] { return one.status().state == "on" && two.status().state == "on"; }));
  late.ranks[0]->trainer_hangs = true;
  REQUIRE(both([&] { return read_text(one.path) == R"({"dynamic_on": false, "collect_times": 400})"; }));
  const std::string line = one.path.string() + " was written by job " + writer + " on " + host_name() +
                           ", not by the user: ignored";
  REQUIRE(both([&] { return late.times_logged(line) == 1; }));
  late.turns(Ticks{2'000});
  CHECK(late.status().state == "on");
  late.ranks[0]->trainer_hangs = false;
  CHECK(both([&] { return late.status().reason.rfind("finished", 0) == 0; }));
  CHECK(late.ranks[0]->collected.size() == 400);
}

TEST_CASE("a job whose ranks have ended no longer counts as another one, although its hub runs on") {
  ServedJob one(kOff);
  std::filesystem::create_directories(one.output / ".gradmon");
  ServedJob two(kOff, 1, 1, true, &one);
  const auto both = [&](const std::function<bool()>& condition) {
    return one.until([&] {
      two.turn();
      return condition();
    });
  };
  const std::string config = "config " + one.path.string() + " is used by another job, too: job launch";
  const std::string output = "output directory " + one.output.string() + " is used by another job, too";
  REQUIRE(both([&] { return two.warns(config) && two.warns(output); }));
  one.ranks[0]->ended = true;
  one.ranks[0]->say(Disconnected{});
  CHECK(both([&] { return !two.warns(config) && !two.warns(output); }));
  CHECK(one.status().ranks.front().state == "dropped");
}

TEST_CASE("ranks that the status has no room for are counted") {
  ServedJob job(kOff, 4'001, 1);
  const Status status = job.status();
  CHECK(status.ranks.size() == 4'000);
  REQUIRE(status.unlisted);
  CHECK(status.unlisted->counted == 1);
  CHECK(count_agreeing_ranks(status).counted == 4'001);
  CHECK(count_agreeing_ranks(status).agreeing <= 1);
}

TEST_CASE("a save that an earlier job left beside a newer one is named until it is removed") {
  ServedJob job(kOff);
  const auto side =
      job.path.parent_path() / ("." + job.path.filename().string() + ".gradmon-prev-" + std::string(12, 'a') +
                                "-" + std::string(12, 'b') + "-" + std::string(16, '0') + "-00000000");
  write_text(side, kOn);
  std::filesystem::last_write_time(side,
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  const std::string line =
      "config " + job.path.string() + ": an earlier save is in " + side.string() + ": copy it or remove it";
  REQUIRE(job.until([&] { return job.warns(line); }));
  CHECK(read_text(job.path) == kOff);
  std::filesystem::remove(side);
  CHECK(job.until([&] { return !job.warns(line); }));
}

}  // namespace
}  // namespace gradmon
