// SPDX-License-Identifier: Apache-2.0
// The hub of a real training is killed before chosen calls on the config file. The next
// hub, started by the rank or by the next launch, completes the write-back.
#include <signal.h>

#include <fstream>

#include "control/debian_version.h"
#include "control/host/job_directory.h"
#include "tests/support/process_figures.h"
#include "tests/support/scale.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/failpoints/failpoints.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

std::string config(const char* on) {
  return std::string("{\"dynamic_on\": ") + on + ", \"collect_times\": 3, \"wg_distribution\": true}";
}

// A job whose hub is started first, with a failpoint that kills it.
class KilledHubJob {
 public:
  explicit KilledHubJob(const std::string& point) {
    fs::create_directory(conf_);
    write_text(config_, config("true"));
    const JobBases bases{directory_ / "gradmon", directory_ / "gradmon"};
    const auto made = make_job_directory("one", bases);
    REQUIRE(made);
    FailpointProcess hub({{test_program("gradmon-hub"), made->path.string(), "one"},
                          {},
                          conf_,
                          point,
                          directory_ / "calls",
                          directory_ / "printed"});
    hub.wait();  // The hub goes into the background.
    REQUIRE(eventually([&] { return fs::exists(made->socket()); }));
  }
  // Kills the hubs that still run: they write to the directory.
  ~KilledHubJob() {
    for (const char* launch : {"one", "two"}) {
      const fs::path socket = JobDirectory{directory_ / "gradmon" / launch}.socket();
      const pid_t hub = listener_of(socket);
      if (hub <= 0) continue;
      kill(hub, SIGKILL);
      eventually([&] { return listener_of(socket) != hub; });
    }
  }
  KilledHubJob(const KilledHubJob&) = delete;
  KilledHubJob& operator=(const KilledHubJob&) = delete;

  void train(const std::string& launch, int steps) {
    FailpointProcess rank({{test_program("gradmon-train"), "--config", config_.string(), "--threads", "1",
                            "--layers", "1", "--width", "8", "--context", "8", "--batch", "1", "--steps",
                            std::to_string(steps), "--step-ms", "10"},
                           {{"DYNAMIC_MONITOR", "True"},
                            {"GRADMON_RUN_ID", launch},
                            {"MONITOR_OUTPUT_DIR", (directory_ / "out").string()},
                            {"XDG_RUNTIME_DIR", directory_.path().string()}},
                           directory_ / "nothing",
                           "",
                           directory_ / "calls of the rank",
                           directory_ / "printed"});
    rank.wait();
    CHECK(rank.exit_code() == 0);
  }

  bool written_back() const {
    return eventually([&] { return read_text(config_) == config("false"); });
  }
  std::vector<std::string> calls() const { return read_lines(directory_ / "calls"); }
  bool killed() const {
    const auto all = calls();
    return !all.empty() && all.back().find(" stopped") != std::string::npos;
  }
  std::string log() const {
    return "the file is " + read_text(config_) + "\n" + read_text(directory_ / "printed") +
           read_text(directory_ / "gradmon" / "one" / "hub.log");
  }

 private:
  const TemporaryDirectory directory_;
  const fs::path conf_ = directory_ / "conf";
  const fs::path config_ = conf_ / "c.json";
};

std::size_t count_calls() {
  KilledHubJob job("");
  job.train("one", 400);
  INFO(job.log());
  REQUIRE(job.written_back());
  return job.calls().size();
}

}  // namespace

TEST_CASE("if a hub is killed at any of its calls on the config file the next hub writes back") {
  const std::size_t calls = count_calls();
  REQUIRE(calls > 20);
  const std::size_t stride = full_scale() ? 1 : calls / 8;
  int killed = 0;
  for (std::size_t n = 1; n <= calls; n += stride) {
    KilledHubJob job(std::to_string(n) + " kill");
    job.train("one", 800);
    CAPTURE(n, job.log());
    killed += job.killed() ? 1 : 0;
    CHECK(job.written_back());
  }
  CHECK(killed > 4);
}

// The rank ends before its hub has written back, so that no rank starts another hub.
TEST_CASE("the next launch completes the write-back of a hub that was killed after its job") {
  for (const char* point : {"renameat2:1 kill", "fsync:1 kill"}) {
    KilledHubJob job(point);
    job.train("one", 60);
    CAPTURE(point, job.log());
    CHECK(eventually([&] { return job.killed(); }));
    job.train("two", 400);
    CHECK(job.written_back());
  }
}

}  // namespace gradmon
