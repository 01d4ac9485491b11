// SPDX-License-Identifier: Apache-2.0
// No kind changes a bit of training, alone or together with the others, and none
// leaves a hook behind.
#include <gradmon/monitor.h>

#include <map>

#include "control/debian_version.h"
#include "tests/hooks/gloo_ranks.h"
#include "tests/support/real_job.h"
#include "tests/whole/neutral/varied_training.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr int kSteps = 12;
constexpr int kStepsOfPlan = 8;  // steps 0, 2, 4 and 6 are collected

std::string without_monitor(const Variation& variation) {
  std::string fingerprint;
  run_ranks(1, [&](GlooGroup& group) {
    VariedTraining training(variation, &group);
    for (int i = 0; i < kSteps; ++i) training.step([&](double) { training.optimizer().step(); });
    fingerprint = training.fingerprint();
  });
  return fingerprint;
}

struct MonitoredRun {
  std::string fingerprint;
  std::size_t hooks_within = 0;      // the most while the plan was in force
  std::size_t hooks_afterwards = 0;  // the most after it had ended
  std::size_t unused = 0;
  std::size_t files = 0;
  RankStatus status;
};

std::size_t count_output_files(const std::filesystem::path& directory) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    count += entry.path().extension() == ".csv" || name == "module_struct.json" ? 1 : 0;
  }
  return count;
}

MonitoredRun with_monitor(const Variation& variation, const std::string& keys) {
  MonitoredRun run;
  const TemporaryDirectory directory;
  keep_jobs_in(directory);
  write_text(directory / "config.json", "{" + keys + R"(, "step_interval": 2, "collect_times": 4})");
  MonitorOptions options;
  options.output_dir = directory / "out";
  options.dynamic = false;
  options.grad_acc_steps = VariedTraining::kMicroBatches;
  run_ranks(1, [&](GlooGroup& group) {
    Monitor monitor(directory / "config.json", options);
    VariedTraining training(variation, &group);
    monitor.watch(training.model(), training.optimizer());
    for (int i = 0; i < kSteps; ++i) {
      std::size_t& hooks = i < kStepsOfPlan - 1 ? run.hooks_within : run.hooks_afterwards;
      if (i != kStepsOfPlan - 1) hooks = std::max(hooks, training.hooks());
      training.step([&](double loss) {
        monitor.scalar("loss", loss);
        monitor.step(training.optimizer());
      });
    }
    run.fingerprint = training.fingerprint();
    run.unused = training.unused();
    monitor.stop();
    run.status = monitor.status().ranks.front();
  });
  run.files = count_output_files(directory / "out");
  return run;
}

TEST_CASE("each kind alone and all together leave training bit-identical") {
  for (const Variation& variation : variations()) {
    const std::string alone = without_monitor(variation);
    std::vector<KindKeys> kinds = kinds_alone();
    kinds.push_back({"all", all_kinds()});
    for (const KindKeys& kind : kinds) {
      const MonitoredRun run = with_monitor(variation, kind.keys);
      CAPTURE(variation.name, kind.name, run.status.error);
      CHECK((run.fingerprint == alone));
      CHECK(run.status.error.empty());
      CHECK(run.hooks_afterwards == 0);
      CHECK(run.files > 0);
      if (kind.name == "all") CHECK(run.hooks_within > 10);
      if (variation.shape.experts > 0) CHECK(run.unused > 0);
    }
  }
}

// The final parameters of both ranks of a job with recomputation, experts, shared and frozen weights.
std::string train_two_ranks(const std::string& monitor) {
  const TemporaryDirectory directory;
  write_text(directory / "config.json", "{" + all_kinds() + R"(, "dynamic_on": true})");
  std::vector<std::string> command{program("gradmonctl"), "run", "-n", "2", "--", program("gradmon-train")};
  const std::string save = directory / "rank";
  for (const std::string& argument : std::vector<std::string>{"--steps",
                                                              "40",
                                                              "--layers",
                                                              "1",
                                                              "--width",
                                                              "16",
                                                              "--context",
                                                              "8",
                                                              "--batch",
                                                              "1",
                                                              "--threads",
                                                              "1",
                                                              "--seed",
                                                              "3",
                                                              "--micro-batches",
                                                              "2",
                                                              "--experts",
                                                              "8",
                                                              "--freeze",
                                                              "norm1",
                                                              "--in-place",
                                                              "--checkpoint",
                                                              "--tied",
                                                              "--config",
                                                              directory / "config.json",
                                                              "--monitor",
                                                              monitor,
                                                              "--save",
                                                              save + "{rank}"}) {
    command.push_back(argument);
  }
  const int code = run_program(command, directory / "log",
                               {{"MONITOR_OUTPUT_DIR", (directory / "out").string()},
                                {"XDG_RUNTIME_DIR", directory.path().string()},
                                {"DYNAMIC_MONITOR", "True"}});
  CAPTURE(read_text(directory / "log"));
  REQUIRE(code == 0);
  if (monitor == "on") {
    CHECK(read_text(directory / "log").find("hooks are off") == std::string::npos);
    CHECK(count_output_files(directory / "out") > 100);
  }
  return read_text(save + "0") + read_text(save + "1");
}

TEST_CASE("two coupled ranks end with identical parameters with every kind collected") {
  const std::string absent = train_two_ranks("off");
  REQUIRE(absent.size() > 1000);
  CHECK((train_two_ranks("on") == absent));
}

TEST_CASE("the fingerprint changes with one more random number") {
  const std::string alone = without_monitor(variations()[0]);
  run_ranks(1, [&](GlooGroup& group) {
    VariedTraining training(variations()[0], &group);
    for (int i = 0; i < kSteps; ++i) training.step([&](double) { training.optimizer().step(); });
    CHECK((training.fingerprint() == alone));
    at::rand({1});
    CHECK((training.fingerprint() != alone));
  });
}

}  // namespace
}  // namespace gradmon
