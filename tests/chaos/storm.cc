// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/storm.h"

#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "tests/runtime/real_job.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPatience{180};

std::int64_t monotonic_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

// Ample: who comes back has to run faster than the others to catch up with them.
std::int64_t step_ms(int world) { return 20L * world; }

LinkFaults slow(int least, int most) { return {milliseconds(least), milliseconds(most), false, false}; }

}  // namespace

Storm::Storm(int world, unsigned seed)
    : random_(seed), job_(world, config(false, 1)), pace_since_(monotonic_us()) {
  job_.start_all(launch());
}

MortalJob::Start Storm::launch() const {
  MortalJob::Start start;
  start.launch = "launch " + std::to_string(launches_);
  start.first_step = first_step_;
  start.train = {"--steps",      "100000000",
                 "--step-ms",    std::to_string(step_ms(job_.world())),
                 "--pace-since", std::to_string(pace_since_)};
  return start;
}

std::string Storm::config(bool on, std::int64_t times) {
  std::ostringstream text;
  // eps tells one content from another.
  text << "{\n  \"wg_distribution\": true,\n  \"fence_timeout\": " << kFenceTimeout
       << ",\n  \"dynamic_on\": " << (on ? "true" : "false") << ",\n  \"collect_times\": " << times
       << ",\n  \"step_interval\": " << 1 + changes_ % 3 << ",\n  \"eps\": " << 1 + changes_ << "e-9\n}\n";
  return text.str();
}

void Storm::note(const std::string& event) {
  const std::int64_t ms = (monotonic_us() - pace_since_) / 1000;
  events_.push_back(std::to_string(ms) + " ms: " + event);
  if (std::getenv("GRADMON_STORM_ALOUD") != nullptr) std::cerr << events_.back() << std::endl;
}

Storm::Trouble Storm::choose() {
  const int dice = pick(1, 100);
  if (dice <= 10) return Trouble::none;
  if (dice <= 20) return Trouble::slow;
  if (dice <= 33) return Trouble::slow_one;
  if (dice <= 48) return Trouble::drop;
  if (dice <= 58) return Trouble::cut_up;
  if (dice <= 68) return Trouble::cut_down;
  if (dice <= 74) return Trouble::cut_both;
  if (dice <= 86) return Trouble::freeze;
  if (dice <= 90) return Trouble::isolate;
  if (dice <= 96) return Trouble::kill;
  return Trouble::restart;
}

bool Storm::begin(Trouble trouble) {
  victim_ = any_rank(1);
  switch (trouble) {
    case Trouble::none:
      note("calm");
      return true;
    case Trouble::slow:
      note("all links slow");
      job_.links().set_all(slow(0, pick(1, 500)));
      return true;
    case Trouble::slow_one:
      note("slow link of rank " + std::to_string(victim_));
      job_.links().set(victim_, slow(pick(0, 250), pick(250, 500)));
      return true;
    case Trouble::drop:
      note("dropped connection of rank " + std::to_string(victim_));
      job_.links().drop(victim_);
      return true;
    case Trouble::cut_up:
    case Trouble::cut_down:
    case Trouble::cut_both:
      note("cut link of rank " + std::to_string(victim_));
      job_.links().set(victim_, {{}, {}, trouble != Trouble::cut_down, trouble != Trouble::cut_up});
      return true;
    case Trouble::freeze:
      victim_ = any_rank(0);
      note("stopped rank " + std::to_string(victim_));
      if (victim_ != 0) job_.freeze(job_.life(victim_));
      return true;
    case Trouble::isolate:
      note("isolated rank " + std::to_string(victim_));
      job_.links().set(victim_, slow(300, 300));
      return true;
    case Trouble::kill:
      note("killed rank " + std::to_string(victim_));
      return true;
    case Trouble::restart:
      note("killed rank 0");
      return true;
  }
  return false;
}

void Storm::hold() { ::poll(nullptr, 0, pick(0, 600)); }

bool Storm::end(Trouble trouble) {
  Life& victim = job_.life(victim_);
  switch (trouble) {
    case Trouble::freeze:
      if (victim_ == 0) job_.freeze(victim);
      hold();
      if (pick(0, 3) == 0) ::poll(nullptr, 0, static_cast<int>(kFenceTimeout * 1000) + 700);
      job_.thaw(victim);
      return true;
    case Trouble::isolate: {
      ::poll(nullptr, 0, 450);  // It has promised, and has not heard the verdict.
      job_.cut_register(victim_);
      job_.links().set(victim_, {milliseconds(0), milliseconds(0), false, true});
      eventually(
          [&] { return read_text(victim.log).find("going on with the old plan") != std::string::npos; },
          seconds(8));
      job_.restore_register(victim_);
      break;
    }
    case Trouble::kill:
      hold();
      job_.slay(victim);
      hold();
      job_.start(victim_, launch());
      return catch_up(victim_);
    case Trouble::restart:
      hold();
      return restart_job();
    default:
      hold();
  }
  job_.links().set_all({});
  return true;
}

// Rank 0 is killed; the others go on for a while, one of them even longer.
bool Storm::restart_job() {
  job_.slay(job_.life(0));
  hold();
  Life& left_over = job_.life(any_rank(1));
  for (int rank = 1; rank < job_.world(); ++rank) {
    if (job_.life(rank).pid != left_over.pid) job_.slay(job_.life(rank));
  }
  launches_ += 1;
  first_step_ = std::max<std::int64_t>(0, (monotonic_us() - pace_since_) / 1000 / step_ms(job_.world()) - 50);
  job_.start_all(launch());
  const bool came = come_back();
  job_.slay(left_over);
  return came;
}

// A process that comes back begins at the first step of its launch. Nothing is put
// in force by all before it is where the others are; how long that takes is the
// machine's, so patience is with a lag that does not shrink.
bool Storm::catch_up(int rank) {
  constexpr std::int64_t kNear = 50;  // steps
  std::int64_t least = INT64_MAX;
  for (auto until = std::chrono::steady_clock::now() + kPatience; std::chrono::steady_clock::now() < until;
       ::poll(nullptr, 0, 200)) {
    const Status status = job_.status();
    const RankStatus& late = status.ranks.at(static_cast<std::size_t>(rank));
    if (late.pid != job_.life(rank).pid) continue;  // Still the one before it.
    const std::int64_t lag = status.ranks.at(0).step - late.step;
    if (lag <= kNear) return true;
    if (lag < least) until = std::chrono::steady_clock::now() + kPatience;
    least = std::min(least, lag);
  }
  note("rank " + std::to_string(rank) + " does not catch up");
  return false;
}

bool Storm::come_back() {
  return eventually(
      [&] {
        const Status status = job_.status();
        return std::all_of(status.ranks.begin(), status.ranks.end(), [&](const RankStatus& rank) {
          return rank.state != "absent" && rank.step > first_step_ + 1;
        });
      },
      kPatience);
}

void Storm::change() {
  changes_ += 1;
  const std::int64_t times = pick(0, 1) == 0 ? pick(1, 5) : 1'000'000;
  const int way = pick(0, 3);
  note("change " + std::to_string(changes_) + " by way " + std::to_string(way));
  before_ = job_.history().size();
  if (way == 0) {
    write_text(job_.config_path, config(true, times));
  } else if (way == 1) {
    std::ofstream(job_.config_path, std::ios::trunc) << config(true, times);
  } else if (way == 2) {
    job_.ask({CommandVerb::on, "", "tester", {}, times, 1 + changes_ % 3, {}});
  } else {
    job_.ask({CommandVerb::set,
              "",
              "tester",
              {},
              {},
              {},
              {{"eps", std::to_string(1 + changes_) + "e-9"}, {"dynamic_on", "true"}}});
  }
}

bool Storm::settled() {
  const auto history = job_.history();
  if (history.size() <= before_ || !history.back().final) return false;
  const HistoryEntry& newest = history.back();
  return newest.verdict == "commit" && newest.applied.size() == static_cast<std::size_t>(job_.world());
}

bool Storm::wait_until_settled() {
  if (eventually([&] { return settled(); }, kPatience)) return true;
  note("not settled: " + std::to_string(before_) + " entries before");
  return false;
}

bool Storm::switch_once() {
  const Trouble trouble = choose();
  if (!begin(trouble)) return false;
  change();
  if (pick(0, 4) == 0) change();
  if (!end(trouble)) return false;
  if (trouble == Trouble::restart) {
    before_ = 0;
    note("restarted from step " + std::to_string(first_step_));
    change();
  }
  return pick(0, 4) == 0 || wait_until_settled();
}

bool Storm::come_to_rest() {
  job_.links().set_all({});
  if (!come_back()) return false;
  changes_ += 1;
  before_ = job_.history().size();
  write_text(job_.config_path, config(true, 2));
  if (!wait_until_settled()) return false;
  return eventually([&] { return job_.history().back().finished_step > 0; }, kPatience);
}

Evidence Storm::evidence() {
  Evidence all;
  job_.status();
  for (const auto& [launch, epoch] : job_.epochs()) {
    Evidence one = gather(job_, launch);
    for (std::string& breach : one.breaches) all.breaches.push_back(launch + ": " + breach);
    all.missed.merge(one.missed);
    all.commits += one.commits;
    all.aborts += one.aborts;
    all.switches_noted += one.switches_noted;
    if (one.longest_call > all.longest_call) {
      all.longest_call = one.longest_call;
      all.slowest = launch + ": " + one.slowest;
    }
  }
  return all;
}

std::string Storm::what() const {
  std::string all;
  for (const std::string& event : events_) all += event + "\n";
  return all + job_.logs();
}

}  // namespace gradmon
