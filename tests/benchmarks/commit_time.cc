// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>

#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/eight_ranks.h"
#include "tests/benchmarks/measure/range.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::microseconds kPace{1000};
// ConfigFile accepts four saves a second; a save that comes sooner would have to wait.
constexpr milliseconds kBetweenSaves{270};
constexpr milliseconds kBetweenCommands{30};

class Stopwatch {
 public:
  explicit Stopwatch(EightRanks& job) : job_(job) {}

  // The milliseconds from each of `count` changes until all ranks have heard its verdict.
  std::vector<double> time(int count, milliseconds between,
                           const std::function<SteadyTime(bool on, int number)>& change) {
    std::vector<double> taken;
    for (int lost = 0; static_cast<int>(taken.size()) < count;) {
      std::this_thread::sleep_for(between);
      on_ = !on_;
      if (const auto ms = time_to_hear(change(on_, ++changes_))) {
        taken.push_back(*ms);
      } else if (++lost > kMaxLost) {
        throw std::runtime_error("not all ranks hear of the changes");
      }
    }
    return taken;
  }

 private:
  static constexpr int kMaxLost = 3;

  std::optional<double> time_to_hear(SteadyTime begin) {
    for (;;) {  // Skips verdicts from before the change: after a lapse the job decides by itself.
      const auto heard = job_.times().wait_for(EightRanks::kRanks, last_);
      if (!heard) return {};
      last_ = heard->first;
      if (heard->second >= begin)
        return std::chrono::duration<double, std::milli>(heard->second - begin).count();
    }
  }

  EightRanks& job_;
  bool on_ = false;
  int changes_ = 0;
  Revision last_;
};

Figure figure_of(const std::string& way, const std::string& what, double goal,
                 const std::vector<double>& taken) {
  const Range range = range_of(taken);
  Figure figure;
  figure.name = "commit_ms_" + way;
  figure.value = range.median;
  figure.unit = "ms";
  figure.goal = Goal{Goal::Sense::at_most, goal};
  figure.how =
      what +
      ", until 8 local ranks with steps of 1 ms know the verdict: median; minimum, median and worst of " +
      std::to_string(taken.size()) + ": " + text_of(range);
  return figure;
}

std::vector<Figure> measure(Effort effort) {
  const int count = effort == Effort::quick ? 4 : 50;
  EightRanks job(kPace);
  Stopwatch watch(job);
  const auto renamed = watch.time(count, kBetweenSaves, [&](bool on, int number) {
    return save_by_rename(job.config(), EightRanks::config_text(on, number));
  });
  const auto commanded = watch.time(count, kBetweenCommands, [&](bool on, int) {
    const SteadyTime begin = Clock::now();
    job.ask(on ? CommandVerb::on : CommandVerb::off);
    return begin;
  });
  const auto written = watch.time(count, kBetweenSaves, [&](bool on, int number) {
    return save_in_place(job.config(), EightRanks::config_text(on, number));
  });
  return {figure_of("rename", "from the rename of a saved config", 20, renamed),
          figure_of("ctl", "from what gradmonctl sends (its own start left out)", 20, commanded),
          figure_of("inplace", "from the beginning of a save in place", 150, written)};
}

}  // namespace

Bench commit_time() { return {{"commit_ms_rename", "commit_ms_ctl", "commit_ms_inplace"}, measure}; }

}  // namespace gradmon
