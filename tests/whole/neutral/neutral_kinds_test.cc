// SPDX-License-Identifier: Apache-2.0
// No kind that can be collected changes a bit of training, alone or with the
// others, and each leaves nothing behind.
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
constexpr int kPlanEnds = 8;  // before the last: collected are 0, 2, 4, 6

std::string without_monitor(const Variation& variation) {
  std::string fingerprint;
  run_ranks(1, [&](GlooRank& group) {
    VariedTraining training(variation, &group);
    for (int i = 0; i < kSteps; ++i) training.step([&](double) { training.optimizer().step(); });
    fingerprint = training.fingerprint();
  });
  return fingerprint;
}

struct Monitored {
  std::string fingerprint;
  std::size_t hooks_within = 0;      // the most while the plan was in force
  std::size_t hooks_afterwards = 0;  // the most after it had ended
  std::size_t unused = 0;
  std::size_t files = 0;
  RankStatus status;
};

std::size_t files_below(const std::filesystem::path& directory) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    count += entry.path().extension() == ".csv" || name == "module_struct.json" ? 1 : 0;
  }
  return count;
}

Monitored with_monitor(const Variation& variation, const std::string& keys) {
  Monitored seen;
  const TemporaryDirectory directory;
  write_text(directory / "config.json", "{" + keys + R"(, "step_interval": 2, "collect_times": 4})");
  MonitorOptions options;
  options.output_dir = directory / "out";
  options.dynamic = false;
  options.grad_acc_steps = VariedTraining::kMicroBatches;
  run_ranks(1, [&](GlooRank& group) {
    Monitor monitor(directory / "config.json", options);
    VariedTraining training(variation, &group);
    monitor.watch(training.model(), training.optimizer());
    for (int i = 0; i < kSteps; ++i) {
      std::size_t& hooks = i < kPlanEnds - 1 ? seen.hooks_within : seen.hooks_afterwards;
      if (i != kPlanEnds - 1) hooks = std::max(hooks, training.hooks());
      training.step([&](double loss) {
        monitor.scalar("loss", loss);
        monitor.step(training.optimizer());
      });
    }
    seen.fingerprint = training.fingerprint();
    seen.unused = training.unused();
    monitor.stop();
    seen.status = monitor.status().ranks.front();
  });
  seen.files = files_below(directory / "out");
  return seen;
}

TEST_CASE("each kind alone and all together leave training as it is bit for bit") {
  for (const Variation& variation : variations()) {
    const std::string alone = without_monitor(variation);
    std::vector<KindKeys> kinds = kinds_alone();
    kinds.push_back({"all", all_kinds()});
    for (const KindKeys& kind : kinds) {
      const Monitored seen = with_monitor(variation, kind.keys);
      CAPTURE(variation.name, kind.name, seen.status.error);
      CHECK((seen.fingerprint == alone));
      CHECK(seen.status.error.empty());
      CHECK(seen.hooks_afterwards == 0);
      CHECK(seen.files > 0);
      if (kind.name == "all") CHECK(seen.hooks_within > 10);
      if (variation.shape.experts > 0) CHECK(seen.unused > 0);
    }
  }
}

// The parameters of both ranks of a job that recomputes, shares, freezes and mixes experts.
std::string two_ranks(const std::string& monitor) {
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
                               {{"MONITOR_OUTPUT_DIR", directory / "out"}, {"DYNAMIC_MONITOR", "True"}});
  CAPTURE(read_text(directory / "log"));
  REQUIRE(code == 0);
  if (monitor == "on") {
    CHECK(read_text(directory / "log").find("hooks are off") == std::string::npos);
    CHECK(files_below(directory / "out") > 100);
  }
  return read_text(save + "0") + read_text(save + "1");
}

TEST_CASE("two coupled ranks end with the same bits with every kind collected") {
  const std::string absent = two_ranks("off");
  REQUIRE(absent.size() > 1000);
  CHECK((two_ranks("on") == absent));
}

TEST_CASE("a training that differs in one bit is told apart") {
  const std::string alone = without_monitor(variations()[0]);
  run_ranks(1, [&](GlooRank& group) {
    VariedTraining training(variations()[0], &group);
    for (int i = 0; i < kSteps; ++i) training.step([&](double) { training.optimizer().step(); });
    CHECK((training.fingerprint() == alone));
    at::rand({1});
    CHECK((training.fingerprint() != alone));
  });
}

}  // namespace
}  // namespace gradmon
