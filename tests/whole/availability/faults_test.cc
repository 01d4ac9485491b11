// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "control/debian_version.h"
#include "tests/support/real_job.h"
#include "tests/support/scale.h"
#include "tests/whole/availability/fault_run.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// --- Faults of a rank's process and of its resources: standard error, descriptors, processes.

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kFaultyRank = 2;

TEST_CASE("the other ranks train on when a rank is killed") {
  Fault fault{"rank killed"};
  fault.begin = [](FaultFixture& fixture) { fixture.job.kill_rank(kFaultyRank); };
  fault.status = rank_pattern("2", "ended|dropped|left|died");
  fault.not_compared = {kFaultyRank};
  check_fault(fault);
}

Fault rank_stopped(const std::string& name, seconds time) {
  Fault fault{name};
  fault.begin = [](FaultFixture& fixture) { fixture.job.stop_rank(1); };
  fault.end = [](FaultFixture& fixture) { fixture.job.continue_rank(1); };
  fault.status = rank_pattern("1", "silent|heard|dropped|waiting|left out|answer|stepped");
  fault.duration = time;
  return fault;
}

TEST_CASE("training goes on when a rank is stopped for 4 s") {
  check_fault(rank_stopped("rank stopped 4 s", seconds(4)));
}
TEST_CASE("training goes on when a rank is stopped for 20 s") {
  if (scaled(0, 1) == 0) {
    WARN("skipped: GRADMON_TEST_SCALE=full only");
    return;
  }
  check_fault(rank_stopped("rank stopped 20 s", seconds(20)));
}

TEST_CASE("training goes on when a rank's connection to its hub is cut") {
  Fault fault{"control connection cut"};
  fault.begin = [](FaultFixture& fixture) {
    if (!fixture.job.cut_connection(1)) throw std::runtime_error("rank 1 has no connection to its hub");
  };
  check_fault(fault);
}

TEST_CASE("status names the ranks without a Monitor when only rank 0 creates one") {
  Fault fault{"Monitor on rank 0 alone"};
  fault.job.trainer_arguments = {{1, {"--bare", "1"}}, {2, {"--bare", "1"}}};
  fault.begin = [](FaultFixture& fixture) {
    if (!eventually([&] { return fixture.job.barrier().step(0) >= 5; }))
      throw std::runtime_error("rank 0 makes no steps");
  };
  fault.status = "waiting for ranks 1, 2";
  fault.recovery = Recovery::needs_restart;
  check_fault(fault);
}

// A new process takes seconds to load torch. Meanwhile the other ranks go on or wait, as
// without gradmon.
void wait_until_restarted(FaultFixture& fixture) {
  const bool steps = eventually(
      [&] {
        const auto content = fixture.job.steps().at(kFaultyRank);
        return content.start > 0 && !content.lines.empty() && content.lines.back().step >= content.start + 3;
      },
      seconds(60));
  if (!steps) throw std::runtime_error("rank 2 does not come back");
}

TEST_CASE("a rank that died and restarts at a later iteration collects again") {
  Fault fault{"rank restarted at a later iteration"};
  fault.begin = [](FaultFixture& fixture) {
    fixture.job.kill_rank(kFaultyRank);
    fixture.job.start(kFaultyRank, fixture.job.barrier().newest_step() + 30);
  };
  fault.end = wait_until_restarted;
  fault.further_checks = [](FaultFixture& fixture) {
    const auto content = fixture.job.steps().at(kFaultyRank);
    const bool collected = std::any_of(content.lines.begin(), content.lines.end(),
                                       [](const StepLine& line) { return line.collected; });
    return collected ? std::vector<std::string>{}
                     : std::vector<std::string>{"the rank that came back never collected"};
  };
  check_fault(fault);
}

TEST_CASE("training goes on when a rank executes itself by exec") {
  Fault fault{"rank executes itself"};
  fault.begin = [](FaultFixture& fixture) { fixture.job.rank_process(kFaultyRank).process->signal(SIGUSR1); };
  fault.end = wait_until_restarted;
  check_fault(fault);
}

TEST_CASE("training goes on with a rank in another pid namespace") {
  Fault fault{"rank in another pid namespace"};
  fault.job.command_prefix = {{1, {"unshare", "--pid", "--fork", "--kill-child"}}};
  fault.begin = [](FaultFixture&) {};
  check_fault(fault);
}

// The pipe for standard error: training writes to ends[1], ends[0] is to read from.
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

// Saves a config with an unknown key, so that gradmon writes a warning.
void edit_that_warns(FaultFixture& fixture) {
  std::string text = read_text(fixture.places.config);
  text.insert(text.find('{') + 1, "\n  \"no_such_key\": 1,");
  write_text(fixture.places.config, text);
}

TEST_CASE("training goes on when standard error is a closed pipe") {
  const auto pipe = std::make_shared<Pipe>();
  Fault fault{"stderr closed"};
  fault.job.stderr_descriptor = pipe->ends[1];
  fault.begin = [pipe](FaultFixture& fixture) {
    close(std::exchange(pipe->ends[0], -1));
    edit_that_warns(fixture);
  };
  check_fault(fault);
}

TEST_CASE("training goes on when standard error is a full pipe") {
  const auto pipe = std::make_shared<Pipe>();
  Fault fault{"stderr full"};
  fault.job.stderr_descriptor = pipe->ends[1];
  fault.begin = [pipe](FaultFixture& fixture) {
    const int end =
        open(("/proc/self/fd/" + std::to_string(pipe->ends[1])).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    const std::array<char, 4096> block{};
    while (write(end, block.data(), block.size()) > 0) continue;
    while (write(end, block.data(), 1) > 0) continue;
    close(end);
    edit_that_warns(fixture);
  };
  check_fault(fault);
}

// Runs prlimit(1) as the job's user: even root may lack the right to another user's limits.
void limit_all(FaultFixture& fixture, const std::string& what, const std::string& most) {
  for (int rank = 0; rank < fixture.job.world(); ++rank) {
    ProcessOptions options;
    options.command = {"prlimit", "--pid", std::to_string(fixture.job.rank_process(rank).process->pid()),
                       "--" + what + "=" + most + ":"};
    options.user = fixture.job.options().user;
    const ProcessResult answer = run_process(options, seconds(5));
    if (answer.code != 0) throw std::runtime_error("prlimit: " + answer.err);
  }
}

Fault exhausted_limit(const std::string& name, const std::string& what, const std::string& again) {
  Fault fault{name};
  fault.begin = [what](FaultFixture& fixture) { limit_all(fixture, what, "0"); };
  fault.end = [what, again](FaultFixture& fixture) { limit_all(fixture, what, again); };
  return fault;
}

// While the fault lasts no rank can start or reach a hub, so `off` cannot be decided.
// The other promises hold.
Fault with_hub_killed(Fault fault) {
  fault.begin = [before = fault.begin](FaultFixture& fixture) {
    before(fixture);
    fixture.job.signal_hub(SIGKILL);
  };
  fault.off = Off::cannot_be_decided;
  fault.duration = milliseconds(3'000);
  return fault;
}

// UBSan opens a pipe to see whether an object's memory can be read, and takes a failure for a bad object.
bool sanitizer_needs_descriptors() {
  if (GRADMON_SANITIZED) WARN("skipped: UBSan needs descriptors itself");
  return GRADMON_SANITIZED;
}

TEST_CASE("training goes on when its descriptors are used up") {
  if (sanitizer_needs_descriptors()) return;
  check_fault(exhausted_limit("descriptors used up", "nofile", "1024"));
}

TEST_CASE("training goes on when its descriptors are used up and the hub dies") {
  if (sanitizer_needs_descriptors()) return;
  check_fault(with_hub_killed(exhausted_limit("descriptors used up, hub dies", "nofile", "1024")));
}

TEST_CASE("training goes on when the hub dies and no process can be started") {
  Fault fault = with_hub_killed(exhausted_limit("no processes left, hub dies", "nproc", "10000"));
  // A user whose processes no other test counts: RLIMIT_NPROC covers the whole machine.
  fault.job.user = static_cast<uid_t>(20'000 + getpid() % 10'000);
  check_fault(fault);
}

// --- Faults of the hub and of the job directory, and two jobs with the same output directory.

namespace fs = std::filesystem;

TEST_CASE("training goes on when the hub is killed") {
  Fault fault{"hub killed"};
  fault.begin = [](FaultFixture& fixture) { fixture.job.signal_hub(SIGKILL); };
  check_fault(fault);
}

Fault hub_stopped(const std::string& name, milliseconds time) {
  Fault fault{name};
  fault.begin = [](FaultFixture& fixture) { fixture.job.signal_hub(SIGSTOP); };
  fault.end = [](FaultFixture& fixture) { fixture.job.signal_hub(SIGCONT); };
  fault.duration = time;
  return fault;
}

TEST_CASE("training goes on when the hub is stopped for 3 s") {
  check_fault(hub_stopped("hub stopped 3 s", seconds(3)));
}

// No hub can decide off: the leases end the collecting.
TEST_CASE("no rank collects without a lease when the hub is stopped for 20 s") {
  if (scaled(0, 1) == 0) {
    WARN("skipped: GRADMON_TEST_SCALE=full only");
    return;
  }
  auto began = std::make_shared<std::int64_t>();
  Fault fault = hub_stopped("hub stopped 20 s", seconds(20));
  fault.off = Off::cannot_be_decided;
  fault.begin = [began](FaultFixture& fixture) {
    *began = monotonic_us();
    fixture.job.signal_hub(SIGSTOP);
  };
  fault.further_checks = [began](FaultFixture& fixture) {
    constexpr std::int64_t kLease = 10'250'000;  // us: the lease of 10 s, and 250 ms for a step
    constexpr std::int64_t kStopped = 20'000'000;
    std::vector<std::string> violations;
    for (const auto& [rank, content] : fixture.job.steps()) {
      for (const StepLine& line : content.lines) {
        const std::int64_t after = line.called_at - *began;
        if (!line.collected || after < kLease || after > kStopped) continue;
        violations.push_back("rank " + std::to_string(rank) + " collects without a lease");
        break;
      }
    }
    return violations;
  };
  check_fault(fault);
}

TEST_CASE("training goes on when somebody removes the job directory") {
  Fault fault{"job directory removed"};
  fault.begin = [](FaultFixture& fixture) {
    std::error_code failed;
    do {  // until the hub puts nothing into it meanwhile
      fs::remove_all(fixture.job.job_directory(), failed);
    } while (failed == std::errc::directory_not_empty);
    if (failed) throw fs::filesystem_error("remove_all", fixture.job.job_directory(), failed);
  };
  check_fault(fault);
}

TEST_CASE("two jobs train on with one output directory and one config") {
  Fault fault{"two jobs in one place"};
  fault.job.world = 2;
  fault.prepare = [](FaultFixture& fixture) {
    JobOptions options;
    options.world = 2;
    options.launch_id = "second";
    fixture.second_job = std::make_unique<TrainingJob>(fixture.places, options);
    fixture.second_job->ask_by_socket();
    fixture.job.ask_by_socket();
  };
  fault.begin = [](FaultFixture& fixture) {
    fixture.second_job->start_all();
    if (!fixture.second_job->wait_until_running()) throw std::runtime_error("the second job does not run");
  };
  fault.status = "second|another job|two jobs|other job";
  check_fault(fault);
}

// --- Faults of the disks of the output, the config and the decision log, and forged job entries.

constexpr std::size_t kSmall = std::size_t{2} << 20U;

Fault full_disk(const std::string& name, fs::path JobPlaces::*place) {
  Fault fault{name};
  fault.prepare = [place](FaultFixture& fixture) {
    fixture.small_disk = std::make_unique<SmallDisk>(fixture.places.*place, kSmall);
  };
  fault.begin = [](FaultFixture& fixture) { fixture.small_disk->fill(); };
  fault.end = [](FaultFixture& fixture) { fixture.small_disk->make_room(); };
  return fault;
}

TEST_CASE("training goes on when the output disk is full") {
  Fault fault = full_disk("output disk full", &JobPlaces::output);
  fault.status = rank_pattern("[012]", "no space");
  check_fault(fault);
}

Fault hanging_disk(const std::string& name, fs::path JobPlaces::*place,
                   void (HangingDisk::*begin)() = &HangingDisk::hang) {
  Fault fault{name};
  fault.prepare = [place](FaultFixture& fixture) {
    fixture.hanging_disk = std::make_unique<HangingDisk>(fixture.places.*place);
  };
  fault.begin = [begin](FaultFixture& fixture) { (*fixture.hanging_disk.*begin)(); };
  fault.end = [](FaultFixture& fixture) { fixture.hanging_disk->recover(); };
  return fault;
}

TEST_CASE("training goes on when the output disk becomes read-only") {
  Fault fault = hanging_disk("output disk read-only", &JobPlaces::output, &HangingDisk::make_read_only);
  fault.status = rank_pattern("[012]", "read-only");
  check_fault(fault);
}

TEST_CASE("training goes on when the output disk hangs") {
  Fault fault = hanging_disk("output disk hung", &JobPlaces::output);
  fault.status = rank_pattern("[012]", "hang|hung|stuck|not written|writer|no progress");
  check_fault(fault);
}

TEST_CASE("training goes on when somebody removes the output directory") {
  Fault fault{"rm -rf of the output directory"};
  fault.begin = [](FaultFixture& fixture) {
    // Rename first: the ranks create missing files faster than remove_all() removes them.
    fs::rename(fixture.places.output, fixture.directory / "aside");
    fs::remove_all(fixture.directory / "aside");
  };
  fault.further_checks = [](FaultFixture& fixture) {
    std::vector<std::string> violations;
    if (!fs::exists(fixture.places.output))
      violations.emplace_back("the output directory was not created again");
    return violations;
  };
  check_fault(fault);
}

TEST_CASE("training goes on when the config's disk hangs") {
  Fault fault = hanging_disk("config's disk hung", &JobPlaces::config_directory);
  fault.status = "config.*(hang|hung|not answer|not read|not written|no answer|unanswered)";
  check_fault(fault);
}

TEST_CASE("training goes on when the config is missing for 3 s") {
  Fault fault{"config away"};
  fault.begin = [](FaultFixture& fixture) {
    fs::rename(fixture.places.config, fixture.places.logs / "away");
  };
  fault.end = [](FaultFixture& fixture) { fs::rename(fixture.places.logs / "away", fixture.places.config); };
  fault.status = "monitor_config.json.*(no such|missing|not there|away|gone|not found|cannot)";
  fault.duration = milliseconds(3'000);
  check_fault(fault);
}

// The disk of the job directory, which holds hub.sock, decisions and hub.log.
TEST_CASE("training goes on when the decision log's disk is full") {
  check_fault(full_disk("decision log's disk full", &JobPlaces::runtime));
}

// Replaces the job's entry in the output directory, and adds a second entry beside it.
Fault replaced_entry(const std::string& name, std::function<void(const fs::path&)> plant) {
  Fault fault{name};
  fault.begin = [plant = std::move(plant)](FaultFixture& fixture) {
    const fs::path jobs = fixture.places.output / ".gradmon" / "jobs";
    fs::create_directories(jobs);
    plant(jobs / "planted.json");
    const fs::path beside =
        jobs / "first.planted";  // The hub writes its own entry again whenever it is gone.
    plant(beside);
    fs::rename(beside, jobs / "first.json");
  };
  return fault;
}

TEST_CASE("training goes on when somebody replaces the job's entry by a forged one") {
  check_fault(replaced_entry("planted entry", [](const fs::path& path) {
    write_text(path, R"({"epoch":"00","launch_id":"first","host":"elsewhere","endpoint":"ipc:///dev/null",)"
                     R"("address":"tcp://127.0.0.1:1","started":4102444800000})");
    if (chown(path.c_str(), 65534, 65534) != 0) throw std::runtime_error("chown");
  }));
}

TEST_CASE("training goes on when somebody replaces the job's entry by a FIFO") {
  check_fault(replaced_entry("planted FIFO", [](const fs::path& path) {
    if (mkfifo(path.c_str(), 0666) != 0) throw std::runtime_error("mkfifo");
  }));
}

TEST_CASE("training goes on when somebody replaces the job's entry by a link to /dev/zero") {
  check_fault(replaced_entry("planted link to /dev/zero",
                             [](const fs::path& path) { fs::create_symlink("/dev/zero", path); }));
}

}  // namespace
}  // namespace gradmon
