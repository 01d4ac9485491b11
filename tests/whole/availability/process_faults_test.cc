// SPDX-License-Identifier: Apache-2.0
// Faults of a rank's process, and of what the system gives it.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "control/debian_version.h"
#include "tests/whole/availability/availability.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kVictim = 2;
constexpr uid_t kUser = 61'234;  // whose processes are this test's alone

TEST_CASE("a rank is killed") {
  Fault fault;
  fault.name = "rank killed";
  fault.begin = [](Scene& scene) { scene.job.kill_rank(kVictim); };
  fault.status = of_rank("2", "ended|dropped|left|died");
  fault.not_compared = {kVictim};
  check(fault);
}

Fault stopped(const std::string& name, seconds time) {
  Fault fault;
  fault.name = name;
  fault.begin = [](Scene& scene) { scene.job.stop_rank(1); };
  fault.end = [](Scene& scene) { scene.job.continue_rank(1); };
  fault.status = of_rank("1", "silent|heard|dropped|waiting|left out|answer|stepped");
  fault.lasts = time;
  return fault;
}

TEST_CASE("a rank stands still for 4 s") { check(stopped("rank stopped 4 s", seconds(4))); }
TEST_CASE("a rank stands still for 20 s") {
  if (full_scale()) check(stopped("rank stopped 20 s", seconds(20)));
}

TEST_CASE("a rank's connection to its hub is cut") {
  Fault fault;
  fault.name = "control connection cut";
  fault.begin = [](Scene& scene) {
    if (!scene.job.cut_connection(1)) throw std::runtime_error("rank 1 has no connection to its hub");
  };
  check(fault);
}

TEST_CASE("only rank 0 makes a Monitor") {
  Fault fault;
  fault.name = "Monitor on rank 0 alone";
  fault.job.trainer = {{1, {"--bare", "1"}}, {2, {"--bare", "1"}}};
  fault.begin = [](Scene& scene) { eventually([&] { return scene.job.barrier().step(0) >= 5; }); };
  fault.status = "waiting for ranks 1, 2";
  fault.healing = Healing::lasts;
  check(fault);
}

// A process needs its time to load torch; the others go on or wait meanwhile, as in
// training without gradmon.
void until_it_steps_again(Scene& scene) {
  const bool steps = eventually(
      [&] {
        const auto content = scene.job.steps().at(kVictim);
        return content.start > 0 && !content.lines.empty() && content.lines.back().step >= content.start + 3;
      },
      seconds(60));
  if (!steps) throw std::runtime_error("rank 2 does not come back");
}

TEST_CASE("a rank that died comes back at a later iteration") {
  Fault fault;
  fault.name = "rank restarted at a later iteration";
  fault.begin = [](Scene& scene) {
    scene.job.kill_rank(kVictim);
    scene.job.start(kVictim, scene.job.barrier().furthest() + 30);
  };
  fault.end = until_it_steps_again;
  fault.besides = [](Scene& scene) {
    const auto content = scene.job.steps().at(kVictim);
    const bool collected = std::any_of(content.lines.begin(), content.lines.end(),
                                       [](const StepLine& line) { return line.collected; });
    return collected ? std::vector<std::string>{}
                     : std::vector<std::string>{"the rank that came back never collected"};
  };
  check(fault);
}

TEST_CASE("a rank executes itself") {
  Fault fault;
  fault.name = "rank executes itself";
  fault.begin = [](Scene& scene) { scene.job.life(kVictim).process->signal(SIGUSR1); };
  fault.end = until_it_steps_again;
  check(fault);
}

TEST_CASE("a rank lives in another pid namespace") {
  Fault fault;
  fault.name = "rank in another pid namespace";
  fault.job.before = {{1, {"unshare", "--pid", "--fork", "--kill-child"}}};
  fault.begin = [](Scene&) {};
  check(fault);
}

// Of standard error: the end that training writes to, and the one that reads.
struct Pipe {
  Pipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  }
  ~Pipe() {
    for (const int end : ends) {
      if (end >= 0) close(end);
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  std::array<int, 2> ends{-1, -1};
};

// An edit about which gradmon has something to say, so that it writes.
void edit_that_warns(Scene& scene) {
  std::string text = read_text(scene.places.config);
  text.insert(text.find('{') + 1, "\n  \"no_such_key\": 1,");
  write_text(scene.places.config, text);
}

TEST_CASE("nobody reads standard error any more: a closed pipe") {
  const auto pipe = std::make_shared<Pipe>();
  Fault fault;
  fault.name = "stderr closed";
  fault.job.error = pipe->ends[1];
  fault.begin = [pipe](Scene& scene) {
    close(std::exchange(pipe->ends[0], -1));
    edit_that_warns(scene);
  };
  check(fault);
}

TEST_CASE("nobody reads standard error any more: a full pipe") {
  const auto pipe = std::make_shared<Pipe>();
  Fault fault;
  fault.name = "stderr full";
  fault.job.error = pipe->ends[1];
  fault.begin = [pipe](Scene& scene) {
    const int end =
        open(("/proc/self/fd/" + std::to_string(pipe->ends[1])).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    const std::array<char, 4096> block{};
    while (write(end, block.data(), block.size()) > 0) continue;
    while (write(end, block.data(), 1) > 0) continue;
    close(end);
    edit_that_warns(scene);
  };
  check(fault);
}

// By prlimit(1) as the job's user: root itself may lack the right over another's limits.
void limit_all(Scene& scene, const std::string& what, const std::string& most) {
  for (int rank = 0; rank < scene.job.world(); ++rank) {
    ChildOptions options;
    options.command = {"prlimit", "--pid", std::to_string(scene.job.life(rank).process->pid()),
                       "--" + what + "=" + most + ":"};
    options.user = scene.job.options().user;
    const Answer answer = answer_of(options, seconds(5));
    if (answer.code != 0) throw std::runtime_error("prlimit: " + answer.err);
  }
}

Fault used_up(const std::string& name, const std::string& what, const std::string& again) {
  Fault fault;
  fault.name = name;
  fault.begin = [what](Scene& scene) { limit_all(scene, what, "0"); };
  fault.end = [what, again](Scene& scene) { limit_all(scene, what, again); };
  return fault;
}

// Nothing can be reached then: what has to hold is that training feels nothing, and
// that all is well afterwards.
Fault and_the_hub_dies(Fault fault) {
  fault.begin = [before = fault.begin](Scene& scene) {
    before(scene);
    scene.job.signal_hub(SIGKILL);
  };
  fault.off = Off::cannot_be_decided;
  fault.lasts = milliseconds(3'000);
  return fault;
}

TEST_CASE("training has used up its descriptors") { check(used_up("descriptors used up", "nofile", "1024")); }

TEST_CASE("training has used up its descriptors when the hub dies") {
  check(and_the_hub_dies(used_up("descriptors used up, hub dies", "nofile", "1024")));
}

TEST_CASE("no process can be started when the hub dies") {
  Fault fault = and_the_hub_dies(used_up("no processes left, hub dies", "nproc", "10000"));
  fault.job.user = kUser;
  check(fault);
}

}  // namespace
}  // namespace gradmon
