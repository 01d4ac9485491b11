// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <optional>
#include <thread>

#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/eight_ranks.h"

namespace gradmon {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds kPace{25'000};
// Saves are made in the first half of a step: a change that is decided before the step ends
// takes effect in the next step.
constexpr microseconds kLatest = kPace / 2;
constexpr int kStepsBetween = 14;  // ConfigFile accepts four saves a second

std::int64_t step_now(const EightRanks& job) {
  return (std::chrono::steady_clock::now() - job.begin_of(0)) / kPace;
}

// The step in which a config was saved, and the step from which it was in effect.
struct EditEffect {
  std::int64_t saved_in;
  std::int64_t from;
};

// nullopt: the config did not take effect on all ranks.
std::optional<EditEffect> save_in_a_step(EightRanks& job, bool on, int number, microseconds into_step,
                                         Revision& last) {
  const std::int64_t n = step_now(job) + kStepsBetween;
  std::this_thread::sleep_until(job.begin_of(n) + into_step);
  save_by_rename(job.config(), EightRanks::config_text(on, number));
  const std::int64_t saved_in = step_now(job);
  const auto heard = job.times().wait_for(EightRanks::kRanks, last);
  if (!heard) return {};
  last = heard->first;
  return EditEffect{saved_in, job.times().step_of(last).value};
}

std::vector<Figure> measure(Effort effort) {
  const int count = effort == Effort::quick ? 4 : 100;
  EightRanks job(kPace);
  int held = 0;
  std::int64_t latest = 0;
  Revision last;
  for (int i = 0; i < count; ++i) {
    const microseconds into_step = kLatest * i / count;
    const auto one = save_in_a_step(job, i % 2 == 0, i + 1, into_step, last);
    if (!one) continue;
    held += one->from == one->saved_in + 1 ? 1 : 0;
    latest = std::max(latest, one->from - one->saved_in);
  }
  Figure figure;
  figure.name = "edits_held_from_next_step";
  figure.value = 100.0 * held / count;
  figure.unit = "%";
  figure.goal = Goal{Goal::Sense::at_least, 100};
  figure.how =
      "saves by rename in the first half of a step n of 25 ms, on 8 local ranks, whose config holds from n + "
      "1 "
      "on all of them: " +
      std::to_string(held) + " of " + std::to_string(count) + "; the latest from n + " +
      std::to_string(latest);
  return {figure};
}

}  // namespace

Bench edit_latency() { return {{"edits_held_from_next_step"}, measure}; }

}  // namespace gradmon
