// SPDX-License-Identifier: Apache-2.0
// The hub of a real training is killed before chosen calls on the config file.
// The next one, which the rank or the next launch starts, does what is left.
#include <fstream>

#include "control/debian_version.h"
#include "control/host/job_directory.h"
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

// A training whose hub has been started before it, to be killed at a chosen call.
class OneJob {
 public:
  explicit OneJob(const std::string& point) {
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
    hub.wait();  // It has gone into the background.
    REQUIRE(eventually([&] { return fs::exists(made->socket()); }));
  }

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
  std::vector<std::string> calls() const { return lines_of(directory_ / "calls"); }
  bool killed() const {
    const auto all = calls();
    return !all.empty() && all.back().find(" stopped") != std::string::npos;
  }
  std::string told() const {
    return "the file is " + read_text(config_) + "\n" + read_text(directory_ / "printed") +
           read_text(directory_ / "gradmon" / "one" / "hub.log");
  }

 private:
  const TemporaryDirectory directory_;
  const fs::path conf_ = directory_ / "conf";
  const fs::path config_ = conf_ / "c.json";
};

std::size_t calls_of_one() {
  OneJob job("");
  job.train("one", 400);
  INFO(job.told());
  REQUIRE(job.written_back());
  return job.calls().size();
}

}  // namespace

TEST_CASE("a hub killed at any of its calls on the config file is followed by one that writes back") {
  const std::size_t calls = calls_of_one();
  REQUIRE(calls > 20);
  const std::size_t stride = full_scale() ? 1 : calls / 8;
  int killed = 0;
  for (std::size_t n = 1; n <= calls; n += stride) {
    OneJob job(std::to_string(n) + " kill");
    job.train("one", 800);
    CAPTURE(n, job.told());
    killed += job.killed() ? 1 : 0;
    CHECK(job.written_back());
  }
  CHECK(killed > 4);
}

// The rank ends while its hub has still to write back: nobody starts another.
TEST_CASE("what a hub killed after its job has left undone the next launch makes up for") {
  for (const char* point : {"renameat2:1 kill", "fsync:1 kill"}) {
    OneJob job(point);
    job.train("one", 60);
    CAPTURE(point, job.told());
    CHECK(eventually([&] { return job.killed(); }));
    job.train("two", 400);
    CHECK(job.written_back());
  }
}

}  // namespace gradmon
