// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/availability/fault_run.h"

#include <poll.h>
#include <re2/re2.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <numeric>
#include <random>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "control/debian_version.h"
#include "tests/support/real_job.h"
#include "tests/support/scale.h"
#include "tests/whole/availability/training_checks.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

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
std::string text_of(milliseconds time) { return std::to_string(time.count()) + " ms"; }

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
    note("off answers " + std::to_string(*code) + " after " + text_of(since(off_asked_)) + ": " + said);
    // The decision is enough: a rank that is away applies it when it is back.
    const bool decided = *code == 0 || said.find("agreed for step") != std::string::npos;
    if (fault_.off == Off::is_decided && !decided)
      add_violation("off is not decided: exit " + std::to_string(*code) + ", " + said);
    if (fault_.off == Off::is_decided && decided && *code == 0 &&
        since(off_asked_) > kDecidedWithin + milliseconds(500))
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
  std::int64_t began_us_ = 0;
  std::optional<int> off_answer_;
  bool turned_on_ = false;  // before the fault
  bool status_names_fault_ = false;
  std::string last_status_;
  std::ostringstream event_log_;
  Outcome outcome_;
};

}  // namespace

FaultFixture::FaultFixture(const JobOptions& options)
    : places(directory.path(), options.user), job(places, options) {}

const char* name_of(Phase phase) {
  return phase == Phase::idle ? "idle" : phase == Phase::on ? "on" : "a change is open";
}

Outcome run_fault(const Fault& fault, Phase phase, unsigned seed) {
  return FaultRun(fault, phase, seed).run();
}

namespace {

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

}  // namespace

std::string rank_pattern(const std::string& rank, const std::string& what) {
  return "(rank |\n +)" + rank + "\\b.*(" + what + ")";
}

void check_fault(const Fault& fault) {
  if (const std::string error = isolate_mounts(); !error.empty()) {
    WARN("skipped: " << error);
    return;
  }
  const unsigned seed = seed_of(fault.name);
  for (const Phase phase : phases(seed)) {
    const Outcome outcome = run_fault(fault, phase, seed);
    std::cout << fault.name << ", while " << name_of(phase) << ", seed " << seed << '\n' << outcome.event_log;
    for (const std::string& violation : outcome.violations) std::cout << "VIOLATION: " << violation << '\n';
    std::cout << std::flush;
    INFO(outcome.output);
    CHECK(outcome.violations.empty());
  }
}

}  // namespace gradmon
