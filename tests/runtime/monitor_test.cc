// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gradmon/monitor.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <stdexcept>

#include "control/config/config_parser.h"
#include "control/config/config_schema.h"
#include "control/hub/transport/command_client.h"
#include "control/hub/transport/rendezvous.h"
#include "hooks/rows/target_names.h"
#include "runtime/collect/expected_targets.h"
#include "runtime/session.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

// A training program with one layer.
struct Training {
  torch::nn::Linear model{4, 3};
  torch::optim::SGD optimizer{model->parameters(), 0.1};

  void backward() {
    optimizer.zero_grad();
    model->forward(torch::ones({2, 4})).sum().backward();
  }
  Loop step(Monitor& monitor) {
    backward();
    return monitor.step(optimizer);
  }
};

MonitorOptions options(const TemporaryDirectory& directory, bool dynamic) {
  MonitorOptions made;
  made.output_dir = directory / "out";
  made.dynamic = dynamic;
  return made;
}

std::filesystem::path write_config(const TemporaryDirectory& directory, const std::string& text) {
  write_text(directory / "config.json", text);
  return directory / "config.json";
}

bool warns(const Monitor& monitor, const std::string& text) {
  const std::vector<std::string> warnings = monitor.status().warnings;
  return std::any_of(warnings.begin(), warnings.end(),
                     [&](const std::string& line) { return line.find(text) != line.npos; });
}

int csv_files(const TemporaryDirectory& directory) {
  int count = 0;
  std::error_code none;  // There is no directory if nothing was written.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "out", none)) {
    count += entry.path().extension() == ".csv" ? 1 : 0;
  }
  return count;
}

std::string csv(const TemporaryDirectory& directory, const std::string& name) {
  std::error_code none;  // There is no directory if nothing was written.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "out", none)) {
    if (entry.path().filename() == name) return read_text(entry.path());
  }
  return "";
}

// A training program that is watched by a monitor with this config.
struct WatchedTraining {
  const TemporaryDirectory directory;
  Training training;
  std::optional<Monitor> monitor;

  explicit WatchedTraining(const std::string& config, bool dynamic = false) {
    monitor.emplace(write_config(directory, config), options(directory, dynamic));
    monitor->watch(*training.model, training.optimizer);
  }
  Loop step() { return training.step(*monitor); }
  std::string csv(const std::string& name) const { return gradmon::csv(directory, name); }
};

TEST_CASE("static mode with a missing or invalid config throws") {
  const TemporaryDirectory directory;
  REQUIRE_THROWS_AS(Monitor(directory / "none.json", options(directory, false)), std::invalid_argument);
  REQUIRE_THROWS_AS(Monitor(write_config(directory, R"({"step_interval": 0})"), options(directory, false)),
                    std::invalid_argument);
}

TEST_CASE("dynamic mode with a missing config is off and does not throw") {
  const TemporaryDirectory directory;
  Training training;
  Monitor monitor(directory / "none.json", options(directory, true));
  monitor.watch(*training.model, training.optimizer);
  for (int i = 0; i < 20; ++i) training.step(monitor);
  REQUIRE(monitor.status().state == "off");
}

TEST_CASE("a step's gradients and weights are written to four files with the parameters' names") {
  WatchedTraining run(R"({"wg_distribution": true, "param_distribution": true, "collect_times": 1,
                                          "ops": ["norm", "min"]})");
  for (int i = 0; i < 4; ++i) run.step();
  run.monitor.reset();
  REQUIRE(csv_files(run.directory) == 4);
  // The gradient of a sum over two rows of ones: every element is 2.
  const std::string expected =
      "vpp_stage,name,step,norm,min,shape,dtype\n"
      "0,weight,0,6.928203,2.0,\"[3, 4]\",torch.float32\n"
      "0,bias,0,3.464102,2.0,[3],torch.float32\n";
  REQUIRE(run.csv("grad_reduced_0-0.csv") == expected);
  REQUIRE_FALSE(run.csv("param_updated_0-0.csv").empty());
}

TEST_CASE("the optimizer's exception passes through") {
  struct Failing : torch::optim::SGD {
    using SGD::SGD;
    at::Tensor step(LossClosure) override { throw std::domain_error("mine"); }
  };
  const TemporaryDirectory directory;
  Training training;
  Failing failing(training.model->parameters(), 0.1);
  Monitor monitor(write_config(directory, R"({"wg_distribution": true})"), options(directory, false));
  monitor.watch(*training.model, failing);
  training.backward();
  REQUIRE_THROWS_AS(monitor.step(failing), std::domain_error);
}

TEST_CASE("a program with an impossible rank trains on without a monitor") {
  const TemporaryDirectory directory;
  Training training;
  MonitorOptions wrong = options(directory, false);
  wrong.rank = 3;
  wrong.world_size = 2;
  Monitor monitor(write_config(directory, "{}"), wrong);
  monitor.watch(*training.model, training.optimizer);
  for (int i = 0; i < 3; ++i) training.step(monitor);
  REQUIRE(monitor.status().reason == "setup failed; see the log");
}

TEST_CASE("the monitor does nothing in a forked child and goes on in the parent") {
  WatchedTraining run(R"({"wg_distribution": true})");
  run.step();
  const pid_t child = fork();
  if (child == 0) {
    ::alarm(60);  // ctest kills only the parent if the child hangs
    for (int i = 0; i < 5; ++i) run.monitor->step();
    run.monitor->stop();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  for (int i = 0; i < 3; ++i) run.step();
  run.monitor->stop();
  REQUIRE_FALSE(run.csv("grad_reduced_3-3.csv").empty());
  REQUIRE(run.csv("grad_reduced_4-4.csv").empty());
}

TEST_CASE("a step without an update has no rows of the update and the status warns") {
  WatchedTraining run(R"({"wg_distribution": true})");
  run.training.backward();
  run.training.optimizer.step();
  run.monitor->step();
  REQUIRE(eventually([&] { return warns(*run.monitor, "without an optimizer's update"); }));
  run.monitor.reset();
  REQUIRE_FALSE(run.csv("grad_unreduced_0-0.csv").empty());
  REQUIRE(run.csv("grad_reduced_0-0.csv").empty());
}

TEST_CASE("nothing is collected after stop") {
  const TemporaryDirectory directory;
  Training training;
  Monitor monitor(write_config(directory, R"({"wg_distribution": true})"), options(directory, false));
  monitor.stop();
  monitor.watch(*training.model, training.optimizer);
  for (int i = 0; i < 3; ++i) training.step(monitor);
  REQUIRE(csv(directory, "grad_reduced_0-0.csv").empty());
}

TEST_CASE("every format of the config has a sink, and several take the same rows") {
  std::string names;
  for (const std::string_view name : kFormatNames)
    names += (names.empty() ? "\"" : ", \"") + std::string(name) + "\"";
  WatchedTraining run(R"({"wg_distribution": true, "format": [)" + names + "]}");
  for (int i = 0; i < 3; ++i) run.step();
  run.monitor.reset();
  CHECK_FALSE(run.csv("grad_reduced_0-0.csv").empty());
  int databases = 0;
  int event_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run.directory.path())) {
    const std::string name = entry.path().filename().string();
    databases += name == "monitor_metrics.db";
    event_files += name.rfind("events.out.tfevents.", 0) == 0;
  }
  CHECK(databases == 1);
  CHECK(event_files == 1);
}

TEST_CASE("an optimizer without parameters gives no rows of another optimizer's parameters") {
  const TemporaryDirectory directory;
  Training training;
  torch::optim::SGD empty(std::vector<at::Tensor>{}, 0.1);
  {
    Monitor monitor(write_config(directory, R"({"wg_distribution": true})"), options(directory, false));
    monitor.watch(*training.model, training.optimizer);
    training.backward();
    monitor.step(empty);
  }
  REQUIRE(csv(directory, "grad_reduced_0-0.csv").empty());
}

// For each name "gradmon-…" of threads of this process: whether all of them block the signal.
std::map<std::string, bool> monitor_threads_block(int signal) {
  std::map<std::string, bool> block;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string name = read_text(task.path() / "comm");
    const std::string status = read_text(task.path() / "status");
    if (name.rfind("gradmon-", 0) != 0 || status.empty()) continue;  // empty: the thread has ended
    const auto mask = std::stoull(status.substr(status.find("SigBlk:") + 7), nullptr, 16);
    bool& all = block.try_emplace(name, true).first->second;
    all = all && (mask >> static_cast<unsigned>(signal - 1) & 1U) != 0;
  }
  return block;
}

TEST_CASE("the monitor's threads block signals so that the program's threads get them") {
  WatchedTraining run(R"({"wg_distribution": true})");
  run.step();
  // Each names itself when it begins to run. A thread that starts the hub comes and goes.
  REQUIRE(eventually([] {
    const auto block = monitor_threads_block(SIGUSR1);
    return block.count("gradmon-agent\n") == 1 && block.count("gradmon-writer\n") == 1;
  }));
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT, SIGHUP}) {
    for (const auto& thread : monitor_threads_block(signal)) {
      CAPTURE(thread.first);
      REQUIRE(thread.second);
    }
  }
}

// How often the writer's thread has waited. A writer that has nothing to do waits once.
long writer_waits() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (read_text(task.path() / "comm") != "gradmon-writer\n") continue;
    const std::string status = read_text(task.path() / "status");
    const std::string key = "\nvoluntary_ctxt_switches:";
    const auto found = status.find(key);
    return found == std::string::npos ? 0 : std::stol(status.substr(found + key.size()));
  }
  return 0;
}

TEST_CASE("an abandoned writer thread does not use the destroyed monitor") {
  const TemporaryDirectory directory;
  ::mallopt(M_PERTURB, 0xa5);  // Overwrites memory when it is freed.
  {
    Training training;
    MonitorOptions rank_1_options = options(directory, false);
    rank_1_options.rank = 1;  // The writer waits for the job's name, which rank 0 would give.
    rank_1_options.world_size = 2;
    Monitor monitor(write_config(directory, R"({"wg_distribution": true})"), std::move(rank_1_options));
    monitor.watch(*training.model, training.optimizer);
    for (int i = 0; i < 3; ++i) training.step(monitor);
    const long before = writer_waits();
    REQUIRE(eventually([&] { return writer_waits() > before + 20; }));  // It looks again and again.
    monitor.stop(std::chrono::milliseconds{0});
    CHECK(monitor.status().ranks.front().dropped > 0);
  }
  CHECK(eventually([] { return monitor_threads_block(SIGTERM).empty(); }));
  ::mallopt(M_PERTURB, 0);
}

TEST_CASE("an output directory that cannot be created is reported and training goes on") {
  const TemporaryDirectory directory;
  write_text(directory / "out", "a file is in the way");
  Training training;
  Monitor monitor(write_config(directory, R"({"wg_distribution": true})"), options(directory, false));
  monitor.watch(*training.model, training.optimizer);
  for (int i = 0; i < 5; ++i) training.step(monitor);
  REQUIRE(eventually([&] {
    const Status status = monitor.status();
    return !status.ranks.empty() && !status.ranks.front().error.empty();
  }));
}

TEST_CASE("the queue has the capacity of the plan in force and not of an earlier refused plan") {
  WatchedTraining run(R"({"dynamic_on": true, "wg_distribution": true, "targets": {"no": {}}})", true);
  const auto steps_until = [&](const std::function<bool(const Status&)>& condition) {
    return eventually([&] {
      run.step();
      return condition(run.monitor->status());
    });
  };
  REQUIRE(steps_until(
      [](const Status& status) { return status.reason.find("no target matches") != std::string::npos; }));
  write_config(
      run.directory,
      R"({"dynamic_on": true, "wg_distribution": true, "queue_capacity": 1, "on_overflow": "drop"})");
  CHECK(steps_until(
      [](const Status& status) { return !status.ranks.empty() && status.ranks.front().dropped > 0; }));
}

TEST_CASE("after the only step that a plan collects the loop may end") {
  WatchedTraining run(R"({"print_struct": true, "start_step": 2})");
  CHECK(run.step() == Loop::goes_on);
  CHECK(run.step() == Loop::goes_on);
  CHECK(run.step() == Loop::may_end);
  for (int i = 0; i < 3; ++i) CHECK(run.step() == Loop::may_end);  // more steps are allowed
  run.monitor->stop();
  CHECK(run.monitor->status().ranks.front().error.empty());
}

using Clock = std::chrono::steady_clock;

// A config that takes long to match: a target that does not exist is compared with every name.
constexpr const char* kMisspeltTargets =
    R"({"dynamic_on": true, "wg_distribution": true, "targets": {"block.7.weight": {}, "blokc.11.weihgt": {},
        "lbock.222.weighs": {}, "block.3333.wait": {}, "blocks.55555.heights": {}, "black.66.weight": {}}})";

WatchedModel large_model() {
  WatchedModel model;
  const at::Tensor weight = torch::zeros({1}, torch::requires_grad());
  for (int i = 0; i < 25'000; ++i)
    model.parameters.push_back({"block." + std::to_string(i) + ".weight", 0, weight});
  return model;
}

Clock::duration time_of_matching(const WatchedModel& model) {
  const auto parsed = parse_config(kMisspeltTargets, "config");
  REQUIRE(parsed.has_value());
  const std::vector<TargetName> names = target_names(model);
  const auto begun = Clock::now();
  CHECK(possible_matches(parsed->config, names) == 1);
  return Clock::now() - begun;
}

// How often this thread has given up the processor by itself, as it does to wait.
long waits_of_this_thread() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

TEST_CASE("noting a skipped update does not wait while the targets of a plan are matched") {
  const TemporaryDirectory directory;
  write_text(directory / "config.json", kMisspeltTargets);
  MonitorOptions options;
  options.output_dir = directory / "out";
  options.dynamic = true;
  Monitor monitor(directory / "config.json", options);
  auto& binding = *MonitorBinding::session(monitor);
  const WatchedModel model = large_model();
  const Clock::duration matching = time_of_matching(model);
  binding.watch(model);
  Clock::duration longest{};
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (!binding.collecting() && Clock::now() < deadline) {
    const long waits = waits_of_this_thread();
    const auto begun = Clock::now();
    binding.note_skipped_update();
    const Clock::duration took = Clock::now() - begun;
    // Otherwise a long call was only interrupted by the system, as happens on a busy machine.
    if (waits_of_this_thread() != waits) longest = std::max(longest, took);
    monitor.step();
  }
  CHECK(binding.collecting());
  CHECK(longest < matching * 3 / 4);
}

using std::chrono::minutes;
using std::chrono::seconds;

const UnendedStep::Time kBegin{};

UnendedStep::Seen at_step(std::int64_t step) {
  UnendedStep::Seen seen;
  seen.current = Step{step};
  return seen;
}

TEST_CASE("a switch that waits for 60 s while no step ends is said, until a step ends") {
  UnendedStep unended(Rank{2}, 1);
  UnendedStep::Seen seen = at_step(7);
  CHECK(unended.look(seen, kBegin).empty());
  CHECK(unended.look(seen, kBegin + minutes(30)).empty());  // nothing waits
  seen.switch_pending = true;
  CHECK(unended.look(seen, kBegin + minutes(30)).empty());
  CHECK(unended.look(seen, kBegin + minutes(30) + seconds(59)).empty());
  CHECK(unended.look(seen, kBegin + minutes(31)) ==
        "rank 2: no step has ended for 60 s; if training runs, its step is captured: call monitor.step()");
  CHECK_FALSE(unended.look(seen, kBegin + minutes(40)).empty());
  seen.current = Step{8};
  CHECK(unended.look(seen, kBegin + minutes(41)).empty());
}

TEST_CASE("a switch that waits while steps end is not said") {
  UnendedStep unended(Rank{0}, 1);
  for (int i = 0; i < 100; ++i) {
    UnendedStep::Seen seen = at_step(i / 2);
    seen.switch_pending = true;
    CHECK(unended.look(seen, kBegin + seconds(20 * i)).empty());
  }
}

TEST_CASE("64 passes without the end of a step are said, or four accumulations if that is more") {
  const auto [accumulation, most] = GENERATE(std::pair(1, 64), std::pair(8, 64), std::pair(32, 128));
  UnendedStep unended(Rank{0}, accumulation);
  UnendedStep::Seen seen = at_step(0);
  seen.collecting = true;
  seen.passes = most - 1;
  CHECK(unended.look(seen, kBegin).empty());
  seen.passes = most;
  CHECK(unended.look(seen, kBegin).find("no step has ended for " + std::to_string(most) + " passes;") !=
        std::string::npos);
}

TEST_CASE("ten minutes in a collected step are said, but not in an evaluation") {
  UnendedStep unended(Rank{0}, 1);
  UnendedStep::Seen seen = at_step(3);
  CHECK(unended.look(seen, kBegin).empty());
  CHECK(unended.look(seen, kBegin + minutes(11)).empty());  // off
  seen.collecting = true;
  seen.evaluations = 1;
  CHECK(unended.look(seen, kBegin + minutes(11)).empty());
  seen.evaluations = 0;
  CHECK(unended.look(seen, kBegin + minutes(11)) ==
        "rank 0: no step has ended for 10 min; if training runs, its step is captured: call monitor.step()");
}

}  // namespace
}  // namespace gradmon
