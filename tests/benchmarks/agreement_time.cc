// SPDX-License-Identifier: Apache-2.0
// From a save or a command until all of eight ranks know the verdict; the first step under an edited config;
// and the processor time and memory of the hub while the job is off.
#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "tests/benchmarks/measure.h"
#include "tests/control/link/agent_job.h"
#include "tests/support/process_figures.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

using SteadyTime = MeasuredPace::Time;

// The times at which the ranks of a job heard each verdict. Any thread.
class VerdictTimes {
 public:
  void note(Revision revision, Step from, SteadyTime heard) {
    const std::lock_guard lock(mutex_);
    Heard& entry = heard_[revision];
    entry.ranks += 1;
    entry.from = std::max(entry.from, from);
    entry.last = std::max(entry.last, heard);
    changed_.notify_all();
  }

  struct Heard {
    int ranks = 0;
    Step from;          // the step from which all ranks had applied the revision
    SteadyTime last{};  // when the last of them heard its verdict
  };
  // Waits for the next revision that `ranks` ranks have applied. nullopt after 10 s: a rank that has lapsed
  // does not hear the verdict of an off.
  std::optional<Heard> next(int ranks) {
    std::unique_lock lock(mutex_);
    auto found = heard_.end();
    const bool heard = changed_.wait_for(lock, std::chrono::seconds(10), [&] {
      found = std::find_if(heard_.upper_bound(last_), heard_.end(),
                           [&](const auto& entry) { return entry.second.ranks == ranks; });
      return found != heard_.end();
    });
    if (!heard) return {};
    last_ = found->first;
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Revision, Heard> heard_;  // guarded by mutex_
  Revision last_;                    // of next(): its thread only
};

// A job of eight ranks without torch on this host, which is off at first. One thread.
class EightRanks {
 public:
  static constexpr int kRanks = 8;

  // Throws std::runtime_error if the ranks do not meet within 20 s.
  explicit EightRanks(microseconds pace)
      : pace_{Clock::now(), pace,
              [this](Revision revision, Step from, SteadyTime heard) { times_.note(revision, from, heard); }},
        job_(kRanks, config_text(), {}, &pace_) {
    const auto met = [&] { return job_.rank(0).agent().status().reason == "never turned on"; };
    if (!eventually(met, std::chrono::seconds(20))) throw std::runtime_error("eight ranks did not meet");
  }

  std::optional<VerdictTimes::Heard> next_verdict() { return times_.next(kRanks); }
  // When step n begins on every rank.
  SteadyTime begin_of(std::int64_t n) const { return pace_.zero + n * pace_.pause; }
  pid_t hub() const { return job_.hub_pid(); }

  // They turn the job on or off, in turns, and return the time just before it. save_by_rename writes a new
  // file beside the config and renames that, as editors do.
  SteadyTime save_by_rename() {
    const fs::path aside = job_.config_path().string() + ".new";
    change();
    std::ofstream(aside) << config_text();
    const SteadyTime begin = Clock::now();
    fs::rename(aside, job_.config_path());
    return begin;
  }
  SteadyTime save_in_place() {
    change();
    const SteadyTime begin = Clock::now();
    std::ofstream(job_.config_path()) << config_text();
    return begin;
  }
  SteadyTime command() {
    change();
    const SteadyTime begin = Clock::now();
    const CommandReply reply = job_.ask(on_ ? CommandVerb::on : CommandVerb::off);
    if (reply.outcome != CommandOutcome::done) throw std::runtime_error(reply.message);
    return begin;
  }

 private:
  void change() {
    on_ = !on_;
    changes_ += 1;  // makes the text unique
  }
  std::string config_text() const {
    return std::string(R"({"dynamic_on": )") + (on_ ? "true" : "false") +
           R"(, "collect_times": 1000000, "lookahead_steps": 1, "note": )" + std::to_string(changes_) + "}\n";
  }

  bool on_ = false;
  int changes_ = 0;
  VerdictTimes times_;  // own synchronisation
  const MeasuredPace pace_;
  // Keep last: its threads use the other members.
  AgentJob job_;
};

// --- Commit times.

// The milliseconds from each of `count` changes until all ranks have heard its verdict.
std::vector<double> times_to_hear(EightRanks& job, int count, milliseconds between,
                                  SteadyTime (EightRanks::*change)()) {
  constexpr int kMaxLost = 3;
  std::vector<double> taken;
  for (int lost = 0; static_cast<int>(taken.size()) < count;) {
    std::this_thread::sleep_for(between);
    const SteadyTime begin = (job.*change)();
    auto heard = job.next_verdict();
    // Skips verdicts from before the change: after a lapse the job decides by itself.
    while (heard && heard->last < begin) heard = job.next_verdict();
    if (heard) {
      taken.push_back(std::chrono::duration<double, std::milli>(heard->last - begin).count());
    } else if (++lost > kMaxLost) {
      throw std::runtime_error("not all ranks hear of the changes");
    }
  }
  return taken;
}

std::vector<Figure> commit_time(Effort effort) {
  // ConfigFile accepts four saves a second; a save that comes sooner would have to wait.
  constexpr milliseconds kBetweenSaves{270};
  constexpr milliseconds kBetweenCommands{30};
  const int count = pick(effort, 4, 50);
  EightRanks job(milliseconds(1));
  const auto renamed = times_to_hear(job, count, kBetweenSaves, &EightRanks::save_by_rename);
  const auto commanded = times_to_hear(job, count, kBetweenCommands, &EightRanks::command);
  const auto written = times_to_hear(job, count, kBetweenSaves, &EightRanks::save_in_place);
  const auto figure = [](const char* name, const std::vector<double>& taken, double goal,
                         const std::string& what) {
    return median_figure(name, taken, "ms", at_most(goal),
                         what + ", until 8 local ranks with steps of 1 ms know the verdict");
  };
  return {figure("commit_ms_rename", renamed, 20, "from the rename of a saved config"),
          figure("commit_ms_ctl", commanded, 20, "from what gradmonctl sends (its own start left out)"),
          figure("commit_ms_inplace", written, 150, "from the beginning of a save in place")};
}

// --- The first step under an edited config.

std::vector<Figure> edit_latency(Effort effort) {
  constexpr microseconds kPace{25'000};
  // Saves are made in the first half of a step: a change that is decided before the step ends
  // takes effect in the next step.
  constexpr microseconds kLatest = kPace / 2;
  constexpr int kStepsBetween = 14;  // ConfigFile accepts four saves a second
  const int count = pick(effort, 4, 100);
  EightRanks job(kPace);
  const auto step_now = [&] { return (Clock::now() - job.begin_of(0)) / kPace; };
  int held = 0;
  std::int64_t latest = 0;
  for (int i = 0; i < count; ++i) {
    std::this_thread::sleep_until(job.begin_of(step_now() + kStepsBetween) + kLatest * i / count);
    job.save_by_rename();
    const std::int64_t saved_in = step_now();
    const auto heard = job.next_verdict();
    if (!heard) continue;  // the config did not take effect on all ranks
    const std::int64_t later = heard->from.value - saved_in;
    held += later == 1 ? 1 : 0;
    latest = std::max(latest, later);
  }
  return {{"edits_held_from_next_step", 100.0 * held / count, "%", at_least(100),
           "saves by rename in the first half of a step n of 25 ms, on 8 local ranks, whose config holds "
           "from n + "
           "1 on all of them: " +
               std::to_string(held) + " of " + std::to_string(count) + "; the latest from n + " +
               std::to_string(latest)}};
}

// --- The idle hub.

// Processor time of all threads, in seconds.
double processor_time(pid_t pid) {
  double total = 0;
  for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    double nanoseconds = 0;
    std::ifstream(task.path() / "schedstat") >> nanoseconds;
    total += nanoseconds / 1e9;
  }
  return total;
}

std::vector<Figure> hub_idle(Effort effort) {
  const double seconds = pick(effort, 1, 20);
  const EightRanks job(milliseconds(25));
  const pid_t hub = job.hub();
  const double before = processor_time(hub);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return {{"hub_idle_percent", 100 * (processor_time(hub) - before) / seconds, "% of a core", at_most(0.1),
           "gradmon-hub beside 8 ranks that are off, over " + text_of(seconds) + " s"},
          {"hub_resident_mb", resident_mib(hub), "MiB", at_most(12), "its resident memory then"}};
}

}  // namespace

std::vector<Bench> agreement_time() {
  return {{{"commit_ms_rename", "commit_ms_ctl", "commit_ms_inplace"}, commit_time},
          {{"edits_held_from_next_step"}, edit_latency},
          {{"hub_idle_percent", "hub_resident_mb"}, hub_idle}};
}

}  // namespace gradmon
