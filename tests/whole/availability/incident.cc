// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/availability/incident.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <random>
#include <regex>
#include <sstream>

#include "tests/whole/availability/collected_steps.h"
#include "tests/whole/availability/training_ends.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kDecidedWithin{5'000};
constexpr milliseconds kHealedWithin{5'000};
constexpr milliseconds kNamedWithin{5'000};
constexpr int kNotInTime = 124;
constexpr int kNoAnswer = 4;            // gradmonctl's exit code
constexpr milliseconds kOffAfter{700};  // the fault has begun: training feels it

milliseconds since(Clock::time_point begun) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begun);
}
std::string text_of(milliseconds time) { return std::to_string(time.count()) + " ms"; }

class Incident {
 public:
  Incident(const Fault& fault, Phase phase, unsigned seed)
      : fault_(fault), phase_(phase), random_(seed), scene_(fault.job) {}

  Outcome run() {
    try {
      unfold();
    } catch (const std::exception& error) {
      broken(error.what());
    }
    outcome_.account = account_.str();
    outcome_.output = scene_.job.output();
    if (scene_.second_job) outcome_.output += scene_.second_job->output();
    return std::move(outcome_);
  }

 private:
  void unfold() {
    if (fault_.prepare) fault_.prepare(scene_);
    scene_.job.start_all();
    if (fault_.healing == Healing::heals && !scene_.job.wait_until_it_runs()) {
      return broken("the job does not run");
    }
    if (phase_ == Phase::on && fault_.healing == Healing::heals &&
        !switch_on("before the fault", kHealedWithin))
      return;
    begin();
    suffer();
    const auto ended = Clock::now();
    if (fault_.end) fault_.end(scene_);
    wait_for_off();
    if (fault_.healing == Healing::heals) heal(ended);
    end_training();
  }

  void broken(const std::string& what) { outcome_.broken.push_back(what); }
  void note(const std::string& what) { account_ << text_of(since(made_)) << ": " << what << '\n'; }

  void begin() {
    if (phase_ == Phase::open) {
      ask_for_on();
      ::poll(nullptr, 0, std::uniform_int_distribution<int>(0, 120)(random_));
    }
    // Where it lasts it was there from the start.
    began_us_ = fault_.healing == Healing::heals ? monotonic_us() : 0;
    note("the fault begins");
    fault_.begin(scene_);
    began_ = Clock::now();
    if (!background_ && !on_) ask_for_on();
  }

  void ask_for_on() {
    ChildOptions options = scene_.job.ctl_options({"on"});
    options.output = scene_.directory / "on";
    background_ = std::make_unique<Child>(options);
  }

  // Meanwhile off is asked for, and the status is looked at.
  void suffer() {
    const auto over = [&] {
      if (fault_.lasts.count() > 0) return since(began_) >= fault_.lasts;
      return since(began_) >= kNamedWithin + kOffAfter || (named_ && off_answer_);
    };
    named_ = fault_.status.empty();
    while (!over()) {
      if (!off_ && since(began_) >= kOffAfter) ask_for_off();
      look_for_off();
      if (!named_) look_at_status();
      ::poll(nullptr, 0, 20);
    }
    if (!named_) broken("the status does not say /" + fault_.status + "/; it says:\n" + last_status_);
    if (!off_) ask_for_off();
  }

  void look_at_status() {
    const Answer answer = scene_.job.ctl({"status"}, seconds(2));
    last_status_ = answer.out + answer.err;
    if (answer.code == kNotInTime) {
      broken("gradmonctl status --output-dir hangs");
      scene_.job.ask_by_socket();
    }
    named_ = std::regex_search(last_status_, std::regex(fault_.status, std::regex::icase));
    if (named_) note("the status names it");
  }

  void ask_for_off() {
    off_asked_ = Clock::now();
    note("asks for off");
    start_off();
  }

  void start_off() {
    std::filesystem::remove(off_output());
    ChildOptions options = scene_.job.ctl_options({"off", "--wait", "--timeout", "5"});
    options.output = off_output();
    off_ = std::make_unique<Child>(options);
  }

  std::filesystem::path off_output() const { return scene_.directory / "off"; }

  void look_for_off() {
    if (!off_ || off_answer_) return;
    const auto code = off_->wait(milliseconds(0));
    if (!code) return;
    const std::string said = read_text(off_output());
    if (*code == kNoAnswer && since(off_asked_) < kDecidedWithin)
      return start_off();  // Said again, as a person would.
    off_answer_ = code;
    note("off answers " + std::to_string(*code) + " after " + text_of(since(off_asked_)) + ": " + said);
    // Decided is what counts: a rank that is away applies it when it comes.
    const bool decided = *code == 0 || said.find("agreed for step") != std::string::npos;
    if (fault_.off == Off::is_decided && !decided)
      broken("off is not decided: exit " + std::to_string(*code) + ", " + said);
    if (fault_.off == Off::is_decided && decided && *code == 0 &&
        since(off_asked_) > kDecidedWithin + milliseconds(500))
      broken("off took " + text_of(since(off_asked_)));
  }

  void wait_for_off() {
    note("the fault ends");
    if (background_) {
      const auto code = background_->wait(milliseconds(500));
      note("on, asked for as it began: exit " + (code ? std::to_string(*code) : "none yet") + ", " +
           read_text(scene_.directory / "on"));
    }
    eventually(
        [&] {
          look_for_off();
          return off_answer_.has_value();
        },
        kDecidedWithin + milliseconds(3'000));
    if (!off_answer_) {
      broken("gradmonctl off hangs");
      off_.reset();
    }
  }

  bool switch_on(const std::string& when, milliseconds within) {
    const auto begun = Clock::now();
    Answer answer;
    // Said again, as a person would, while the job says no.
    do {
      const auto left = std::chrono::ceil<seconds>(within - since(begun));
      answer = scene_.job.ctl(
          {"on", "--wait", "--timeout", std::to_string(std::max<std::int64_t>(left.count(), 1))},
          within + seconds(2));
    } while (answer.code != 0 && since(begun) < within);
    note("on " + when + ": exit " + std::to_string(answer.code) + " after " + text_of(since(begun)) + " " +
         answer.err);
    if (answer.code != 0) {
      broken("on " + when + " is not done within " + text_of(within) + ": exit " +
             std::to_string(answer.code) + ", " + answer.err + scene_.job.ctl({"status"}).out);
    }
    on_ = answer.code == 0;
    return on_;
  }

  void heal(Clock::time_point ended) {
    const bool on = switch_on("after the fault", std::max(kHealedWithin - since(ended), milliseconds(2'000)));
    if (!on) return;
    const bool all = eventually([&] { return all_collect(); }, seconds(3));
    if (!all) broken("on is answered, but not every rank collects");
    const Answer off = scene_.job.ctl({"off", "--wait", "--timeout", "5"});
    note("off after the fault: exit " + std::to_string(off.code) + " after " + text_of(off.took));
    if (off.code != 0) broken("off after the fault: exit " + std::to_string(off.code) + ", " + off.err);
  }

  bool all_collect() const {
    for (const auto& [rank, content] : scene_.job.steps()) {
      if (fault_.not_compared.count(rank) != 0) continue;
      if (content.lines.empty() || !content.lines.back().collected) return false;
    }
    return true;
  }

  void end_training() {
    const std::int64_t until = monotonic_us();
    scene_.job.keep_history();
    const auto codes = scene_.job.end(seconds(20));
    note("training has ended");
    if (scene_.second_job) compare_ends(*scene_.second_job, scene_.second_job->end(seconds(20)));
    compare_ends(scene_.job, codes);
    const auto felt = stalls(scene_.job, began_us_, until);
    note("stalls: " + to_string(felt));
    for (std::string& each : broken_bounds(felt, {})) broken(each);
    for (std::string& each : disagreements(scene_.job)) broken(each);
    for (const int rank : lapsed_ranks(scene_.job)) note("rank " + std::to_string(rank) + " lapsed");
    if (!fault_.besides) return;
    for (std::string& each : fault_.besides(scene_)) broken(each);
  }

  void compare_ends(TrainingJob& job, const std::map<int, std::optional<int>>& codes) {
    for (std::string& each : different_ends(job, codes, fault_.not_compared)) broken(each);
  }

  const Fault& fault_;
  const Phase phase_;
  std::mt19937 random_;
  const Clock::time_point made_ = Clock::now();
  Scene scene_;
  std::unique_ptr<Child> background_;
  std::unique_ptr<Child> off_;
  Clock::time_point began_, off_asked_;
  std::int64_t began_us_ = 0;
  std::optional<int> off_answer_;
  bool on_ = false;  // before the fault
  bool named_ = false;
  std::string last_status_;
  std::ostringstream account_;
  Outcome outcome_;
};

}  // namespace

Scene::Scene(const JobOptions& options) : places(directory.path(), options.user), job(places, options) {}

const char* name_of(Phase phase) {
  return phase == Phase::idle ? "idle" : phase == Phase::on ? "on" : "a change is open";
}

Outcome go_through(const Fault& fault, Phase phase, unsigned seed) {
  return Incident(fault, phase, seed).run();
}

}  // namespace gradmon
