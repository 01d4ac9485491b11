// SPDX-License-Identifier: Apache-2.0
// Training jobs of real processes, each through one fault: the promises of availability.
#include <fcntl.h>
#include <poll.h>
#include <re2/re2.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/real_job.h"
#include "tests/support/scale.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/availability/disks.h"
#include "tests/whole/availability/training_checks.h"
#include "tests/whole/availability/training_job.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// The job that the fault hits, with its directories and disks.
struct FaultFixture {
  explicit FaultFixture(const JobOptions& options)
      : places(directory.path(), options.user), job(places, options) {}

  // Keep this order: disks outlive the processes that use them.
  TemporaryDirectory directory;
  JobPlaces places;
  std::unique_ptr<SmallDisk> small_disk;
  std::unique_ptr<HangingDisk> hanging_disk;
  TrainingJob job;
  std::unique_ptr<TrainingJob> second_job;
};

// When the fault begins: gradmon is off; a plan is on; `on` has just been sent, so a revision is open.
enum class Phase : std::uint8_t { idle, on, open };
const char* name_of(Phase phase) {
  return phase == Phase::idle ? "idle" : phase == Phase::on ? "on" : "a change is open";
}

enum class Off : std::uint8_t { is_decided, cannot_be_decided };
// needs_restart: the fault lasts until the job is restarted.
enum class Recovery : std::uint8_t { expected, needs_restart };

// A fault, and the answers and limits that are expected of the job.
struct Fault {
  std::string name;  // printed; also chooses the phase (see check_fault())
  std::function<void(FaultFixture&)> begin = {};
  std::function<void(FaultFixture&)> end = {};      // null: nothing to undo
  std::function<void(FaultFixture&)> prepare = {};  // before the job starts
  JobOptions job = {};
  std::string status = {};   // pattern that `gradmonctl status` must show; "": none
  milliseconds duration{0};  // exactly; 0: until `off` has an answer and `status` was seen
  Off off = Off::is_decided;
  Recovery recovery = Recovery::expected;
  std::set<int> not_compared = {};  // ranks that do not end as bare training does
  // Further checks, after the job has ended. Returns one line for each broken promise.
  std::function<std::vector<std::string>(FaultFixture&)> further_checks = {};
};

struct Outcome {
  std::vector<std::string> violations;  // one line for each broken promise
  std::string event_log;                // the course of events, for people
  std::string output;                   // of the processes
};

constexpr milliseconds kDecidedWithin{5'000};
// A slow machine needs more than the 2 s that they take. A rank that is only silent is dropped after 15 s.
constexpr milliseconds kRecoveredWithin{12'000};
constexpr milliseconds kNamedWithin{12'000};
constexpr int kNotInTime = 124;
constexpr int kNoAnswer = 4;            // gradmonctl's exit code
constexpr milliseconds kOffAfter{700};  // `off` is sent so long after the fault began

milliseconds since(Clock::time_point begun) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begun);
}
// The time in which any process of this machine has waited for a CPU; 0 if Linux does not tell.
milliseconds cpu_pressure() {
  std::int64_t us = 0;
  RE2::PartialMatch(read_text("/proc/pressure/cpu"), "total=(\\d+)", &us);
  return std::chrono::duration_cast<milliseconds>(std::chrono::microseconds(us));
}
std::string text_of(milliseconds time) { return std::to_string(time.count()) + " ms"; }

// Runs a job of real processes through the fault. The promises: stalls() keeps StallBounds,
// `off` is decided within 5 s, `status` shows Fault::status, `on` and `off` work again
// within 12 s after the fault, ranks do not disagree on a step, and training ends as
// without gradmon.
class FaultRun {
 public:
  FaultRun(const Fault& fault, Phase phase, unsigned seed)
      : fault_(fault), phase_(phase), random_(seed), fixture_(fault.job) {}

  Outcome run() {
    try {
      run_all();
    } catch (const std::exception& error) {
      add_violation(error.what());
    }
    outcome_.event_log = event_log_.str();
    outcome_.output = fixture_.job.output();
    if (fixture_.second_job) outcome_.output += fixture_.second_job->output();
    return std::move(outcome_);
  }

 private:
  void run_all() {
    if (fault_.prepare) fault_.prepare(fixture_);
    fixture_.job.start_all();
    if (fault_.recovery == Recovery::expected && !fixture_.job.wait_until_running()) {
      return add_violation("the job does not run");
    }
    if (phase_ == Phase::on && fault_.recovery == Recovery::expected &&
        !switch_on("before the fault", kRecoveredWithin))
      return;
    begin();
    poll_during_fault();
    const auto ended = Clock::now();
    if (fault_.end) fault_.end(fixture_);
    wait_for_off();
    if (fault_.recovery == Recovery::expected) check_recovery(ended);
    end_training();
  }

  void add_violation(const std::string& what) { outcome_.violations.push_back(what); }
  void note(const std::string& what) { event_log_ << text_of(since(created_at_)) << ": " << what << '\n'; }

  void begin() {
    if (phase_ == Phase::open) {
      ask_for_on();
      ::poll(nullptr, 0, std::uniform_int_distribution<int>(0, 120)(random_));
    }
    // A fault without recovery was present from the start: all stalls count.
    began_us_ = fault_.recovery == Recovery::expected ? monotonic_us() : 0;
    note("the fault begins");
    fault_.begin(fixture_);
    began_ = Clock::now();
    if (!on_command_ && !turned_on_) ask_for_on();
  }

  void ask_for_on() {
    ProcessOptions options = fixture_.job.gradmonctl_options({"on"});
    options.output = fixture_.directory / "on";
    on_command_ = std::make_unique<ChildProcess>(options);
  }

  // For the time of the fault: sends `off` and polls `status`.
  void poll_during_fault() {
    const auto over = [&] {
      if (fault_.duration.count() > 0) return since(began_) >= fault_.duration;
      return since(began_) >= kNamedWithin + kOffAfter || (status_names_fault_ && off_answer_);
    };
    status_names_fault_ = fault_.status.empty();
    while (!over()) {
      if (!off_command_ && since(began_) >= kOffAfter) ask_for_off();
      poll_off();
      if (!status_names_fault_) poll_status();
      ::poll(nullptr, 0, 20);
    }
    if (!status_names_fault_)
      add_violation("the status does not say /" + fault_.status + "/; it says:\n" + last_status_);
    if (!off_command_) ask_for_off();
  }

  void poll_status() {
    const ProcessResult answer = fixture_.job.run_gradmonctl({"status"}, seconds(10));
    last_status_ = answer.out + answer.err;
    if (answer.code == kNotInTime) {
      add_violation("gradmonctl status --output-dir hangs");
      fixture_.job.ask_by_socket();
    }
    status_names_fault_ = RE2::PartialMatch(last_status_, "(?i)" + fault_.status);
    if (status_names_fault_) note("the status names the fault");
  }

  void ask_for_off() {
    off_asked_ = Clock::now();
    pressure_before_ = cpu_pressure();
    note("sends off");
    start_off();
  }

  void start_off() {
    std::filesystem::remove(off_output());
    ProcessOptions options = fixture_.job.gradmonctl_options({"off", "--wait", "--timeout", "5"});
    options.output = off_output();
    off_command_ = std::make_unique<ChildProcess>(options);
  }

  std::filesystem::path off_output() const { return fixture_.directory / "off"; }

  void poll_off() {
    if (!off_command_ || off_answer_) return;
    const auto code = off_command_->wait(milliseconds(0));
    if (!code) return;
    const std::string said = read_text(off_output());
    if (*code == kNoAnswer && since(off_asked_) < kDecidedWithin)
      return start_off();  // Repeated, as a user would.
    off_answer_ = code;
    const milliseconds delayed = cpu_pressure() - pressure_before_;
    note("off answers " + std::to_string(*code) + " after " + text_of(since(off_asked_)) + " (" +
         text_of(delayed) + " without a free CPU): " + said);
    // The decision is enough: a rank that is away applies it when it is back.
    const bool decided = *code == 0 || said.find("agreed for step") != std::string::npos;
    if (fault_.off == Off::is_decided && !decided)
      add_violation("off is not decided: exit " + std::to_string(*code) + ", " + said);
    if (fault_.off == Off::is_decided && decided && *code == 0 &&
        since(off_asked_) - delayed > kDecidedWithin + milliseconds(500))
      add_violation("off took " + text_of(since(off_asked_)));
  }

  void wait_for_off() {
    note("the fault ends");
    if (on_command_) {
      const auto code = on_command_->wait(milliseconds(500));
      note("on, sent as the fault began: exit " + (code ? std::to_string(*code) : "none yet") + ", " +
           read_text(fixture_.directory / "on"));
    }
    eventually(
        [&] {
          poll_off();
          return off_answer_.has_value();
        },
        kDecidedWithin + milliseconds(3'000));
    if (!off_answer_) {
      add_violation("gradmonctl off hangs");
      off_command_.reset();
    }
  }

  bool switch_on(const std::string& when, milliseconds within) {
    const auto begun = Clock::now();
    ProcessResult answer;
    // Repeated, as a user would, while the job refuses.
    do {
      const auto left = std::chrono::ceil<seconds>(within - since(begun));
      answer = fixture_.job.run_gradmonctl(
          {"on", "--wait", "--timeout", std::to_string(std::max<std::int64_t>(left.count(), 1))},
          within + seconds(2));
    } while (answer.code != 0 && since(begun) < within);
    note("on " + when + ": exit " + std::to_string(answer.code) + " after " + text_of(since(begun)) + " " +
         answer.err);
    if (answer.code != 0) {
      add_violation("on " + when + " is not done within " + text_of(within) + ": exit " +
                    std::to_string(answer.code) + ", " + answer.err +
                    fixture_.job.run_gradmonctl({"status"}).out);
    }
    turned_on_ = answer.code == 0;
    return turned_on_;
  }

  void check_recovery(Clock::time_point ended) {
    const bool on =
        switch_on("after the fault", std::max(kRecoveredWithin - since(ended), milliseconds(2'000)));
    if (!on) return;
    const bool all = eventually([&] { return all_collect(); }, seconds(20));
    if (!all) add_violation("on has succeeded, but not every rank collects");
    const ProcessResult off = fixture_.job.run_gradmonctl({"off", "--wait", "--timeout", "5"});
    note("off after the fault: exit " + std::to_string(off.code) + " after " + text_of(off.took));
    if (off.code != 0)
      add_violation("off after the fault: exit " + std::to_string(off.code) + ", " + off.err);
  }

  bool all_collect() const {
    for (const auto& [rank, content] : fixture_.job.steps()) {
      if (fault_.not_compared.count(rank) != 0) continue;
      if (content.lines.empty() || !content.lines.back().collected) return false;
    }
    return true;
  }

  void end_training() {
    const std::int64_t until = monotonic_us();
    if (!fixture_.job.store_history()) add_violation("gradmonctl history fails");
    const auto codes = fixture_.job.end(seconds(20));
    note("training has ended");
    if (fixture_.second_job) compare_ends(*fixture_.second_job, fixture_.second_job->end(seconds(20)));
    compare_ends(fixture_.job, codes);
    const auto felt = stalls(fixture_.job, began_us_, until);
    note("stalls: " + to_string(felt));
    for (std::string& each : bound_violations(felt, {})) add_violation(each);
    for (std::string& each : disagreements(fixture_.job)) add_violation(each);
    for (const int rank : lapsed_ranks(fixture_.job)) note("rank " + std::to_string(rank) + " lapsed");
    if (!fault_.further_checks) return;
    for (std::string& each : fault_.further_checks(fixture_)) add_violation(each);
  }

  void compare_ends(TrainingJob& job, const std::map<int, std::optional<int>>& codes) {
    for (std::string& each : different_ends(job, codes, fault_.not_compared)) add_violation(each);
  }

  const Fault& fault_;
  const Phase phase_;
  std::mt19937 random_;
  const Clock::time_point created_at_ = Clock::now();
  FaultFixture fixture_;
  std::unique_ptr<ChildProcess> on_command_;
  std::unique_ptr<ChildProcess> off_command_;
  Clock::time_point began_, off_asked_;
  milliseconds pressure_before_{0};
  std::int64_t began_us_ = 0;
  std::optional<int> off_answer_;
  bool turned_on_ = false;  // before the fault
  bool status_names_fault_ = false;
  std::string last_status_;
  std::ostringstream event_log_;
  Outcome outcome_;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

unsigned seed_of(const std::string& name) {
  const std::string given = variable("GRADMON_AVAILABILITY_SEED");
  const unsigned base = given.empty() ? 1U : static_cast<unsigned>(std::stoul(given));
  return std::accumulate(name.begin(), name.end(), base,
                         [](unsigned sum, char c) { return sum * 31U + static_cast<unsigned char>(c); });
}

std::vector<Phase> phases(unsigned seed) {
  const std::vector<Phase> all{Phase::idle, Phase::on, Phase::open};
  const std::string wanted = variable("GRADMON_AVAILABILITY_PHASE");
  if (wanted == "idle") return {Phase::idle};
  if (wanted == "on") return {Phase::on};
  if (wanted == "open") return {Phase::open};
  if (!wanted.empty()) throw std::runtime_error("GRADMON_AVAILABILITY_PHASE is not idle, on or open");
  return scaled(0, 1) != 0 ? all : std::vector{all[seed % 3]};
}

// A pattern for Fault::status: `what` in the rank's row of the table, or in a line that
// names the rank. `rank` and `what` are patterns, too.
std::string rank_pattern(const std::string& rank, const std::string& what) {
  return "(rank |\n +)" + rank + "\\b.*(" + what + ")";
}

// Runs the fault in one phase, chosen by the fault's name and the seed
// (GRADMON_AVAILABILITY_SEED, else 1). GRADMON_TEST_SCALE=full: in all three phases.
// GRADMON_AVAILABILITY_PHASE=idle, on or open: in that phase. Prints the course of
// events; fails the test if a promise was broken. Skips it where mounts are impossible.
void check_fault(const Fault& fault) {
  if (const std::string error = isolate_mounts(); !error.empty()) {
    WARN("skipped: " << error);
    return;
  }
  const unsigned seed = seed_of(fault.name);
  for (const Phase phase : phases(seed)) {
    const Outcome outcome = FaultRun(fault, phase, seed).run();
    std::cout << fault.name << ", while " << name_of(phase) << ", seed " << seed << '\n' << outcome.event_log;
    for (const std::string& violation : outcome.violations) std::cout << "VIOLATION: " << violation << '\n';
    std::cout << std::flush;
    INFO(outcome.output);
    CHECK(outcome.violations.empty());
  }
}

// --- Faults of a rank's process and of its resources: standard error, descriptors, processes.

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

TEST_CASE("training goes on when somebody replaces the job's entry by a forged one") {
  Fault fault{"planted entry"};
  fault.begin = [](FaultFixture& fixture) {
    const fs::path jobs = fixture.places.output / ".gradmon" / "jobs";
    fs::create_directories(jobs);
    // The hub writes its own entry again whenever it is gone.
    for (const fs::path& planted : {jobs / "planted.json", jobs / "first.planted"}) {
      write_text(planted,
                 R"({"epoch":"00","launch_id":"first","host":"elsewhere","endpoint":"ipc:///dev/null",)"
                 R"("address":"tcp://127.0.0.1:1","started":4102444800000})");
      if (chown(planted.c_str(), 65534, 65534) != 0) throw std::runtime_error("chown");
    }
    fs::rename(jobs / "first.planted", jobs / "first.json");
  };
  check_fault(fault);
}

}  // namespace
}  // namespace gradmon
