// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/chaos/storm.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>

#include "tests/support/real_job.h"

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

}  // namespace

Storm::Storm(int world, unsigned seed, int hosts)
    : random_(seed), job_(world, config(false, 1), hosts), pace_since_(monotonic_us()) {
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
  text << "{\n  \"wg_distribution\": true,\n  \"max_wait\": " << kMaxWait
       << ",\n  \"dynamic_on\": " << (on ? "true" : "false") << ",\n  \"collect_times\": " << times
       << ",\n  \"step_interval\": " << 1 + changes_ % 3 << ",\n  \"eps\": " << 1 + changes_ << "e-9\n}\n";
  return text.str();
}

void Storm::note(const std::string& event) {
  const std::int64_t ms = (monotonic_us() - pace_since_) / 1000;
  events_.push_back(std::to_string(ms) + " ms: " + event);
  if (std::getenv("GRADMON_STORM_ALOUD") != nullptr) std::cerr << events_.back() << std::endl;
}

Storm::ErrorSource Storm::choose_among_hosts() {
  const int dice = pick(1, 100);
  if (dice <= 40) return ErrorSource::cut_link;
  if (dice <= 70) return ErrorSource::full_disk;
  return ErrorSource::hung_config;
}

Storm::ErrorSource Storm::choose() {
  host_ = pick(0, job_.hosts() - 1);
  if (job_.hosts() > 1 && pick(0, 2) == 0) return choose_among_hosts();
  const int dice = pick(1, 100);
  if (dice <= 10) return ErrorSource::none;
  if (dice <= 32) return ErrorSource::freeze;
  if (dice <= 38) return ErrorSource::freeze_two;
  if (dice <= 50) return ErrorSource::freeze_hub;
  if (dice <= 68) return ErrorSource::kill;
  if (dice <= 84) return ErrorSource::kill_hub;
  if (dice <= 91) return ErrorSource::kill_hub_twice;
  if (dice <= 95) return ErrorSource::kill_rank0_and_hub;
  return ErrorSource::restart;
}

bool Storm::begin(ErrorSource trouble) {
  victim_ = any_rank(0);
  // Without rank 0 nobody takes the command, and the storm goes on only when it is taken.
  const bool first = changes_ == 0;
  if (first && (trouble == ErrorSource::freeze || trouble == ErrorSource::freeze_two)) {
    if (!eventually([&] { return !job_.status().ranks.empty(); }, kPatience)) return false;
  }
  const std::string victim = "rank " + std::to_string(victim_);
  switch (trouble) {
    case ErrorSource::none:
      note("calm");
      return true;
    case ErrorSource::freeze:
    case ErrorSource::freeze_two:
      note("stopped " + victim + (trouble == ErrorSource::freeze_two ? " and the one after" : ""));
      job_.freeze(job_.life(victim_));
      if (trouble == ErrorSource::freeze_two) job_.freeze(job_.life((victim_ + 1) % job_.world()));
      return true;
    case ErrorSource::freeze_hub:
      note("stopped the hub of host " + std::to_string(host_));
      return true;
    case ErrorSource::kill:
      note("killed " + victim);
      return true;
    case ErrorSource::kill_hub:
    case ErrorSource::kill_hub_twice:
      note("killed the hub of host " + std::to_string(host_));
      return true;
    case ErrorSource::kill_rank0_and_hub:
      victim_ = 0;
      note("killed rank 0 and the hub");
      return true;
    case ErrorSource::restart:
      note("killed rank 0 for good");
      return true;
    case ErrorSource::cut_link:
      note("cut the link of host " + std::to_string(host_));
      return true;
    case ErrorSource::full_disk:
      note("filled the disk of the hub of host " + std::to_string(host_));
      return true;
    case ErrorSource::hung_config:
      note("made the config's disk hang");
      return true;
  }
  return false;
}

void Storm::hold() { ::poll(nullptr, 0, pick(0, 600)); }

bool Storm::end(ErrorSource trouble) {
  Life& victim = job_.life(victim_);
  // Now and then for longer than a rank is waited for.
  const int longer = pick(0, 3) == 0 ? static_cast<int>(kMaxWait * 1000) + 700 : 0;
  hold();
  switch (trouble) {
    case ErrorSource::none:
      return true;
    case ErrorSource::freeze:
    case ErrorSource::freeze_two:
      ::poll(nullptr, 0, longer);
      if (trouble == ErrorSource::freeze_two) job_.thaw(job_.life((victim_ + 1) % job_.world()));
      job_.thaw(victim);
      return true;
    case ErrorSource::freeze_hub:
      job_.signal_hub(SIGSTOP, host_);
      hold();
      ::poll(nullptr, 0, longer);
      job_.signal_hub(SIGCONT, host_);
      return true;
    case ErrorSource::kill:
      job_.slay(victim);
      hold();
      return come_back_as(victim_);
    case ErrorSource::kill_hub_twice:
      job_.slay_hub(false, host_);
      hold();
      job_.slay_hub(false, host_);
      return true;
    case ErrorSource::kill_hub:
      job_.slay_hub(false, host_);
      return true;
    case ErrorSource::kill_rank0_and_hub:
      job_.slay(victim);
      job_.slay_hub();
      hold();
      return come_back_as(0);
    case ErrorSource::restart:
      return restart_job();
    case ErrorSource::cut_link:
    case ErrorSource::full_disk:
    case ErrorSource::hung_config:
      return end_on_host(trouble, longer);
  }
  return false;
}

bool Storm::end_on_host(ErrorSource trouble, int longer) {
  const IsolatedHosts& hosts = *job_.isolated_hosts();
  if (trouble == ErrorSource::cut_link) hosts.network().take_down(host_);
  if (trouble == ErrorSource::full_disk) hosts.fill(host_);
  if (trouble == ErrorSource::hung_config) job_.config_disk().hang();
  hold();
  ::poll(nullptr, 0, longer);
  if (trouble == ErrorSource::cut_link) hosts.network().bring_up(host_);
  if (trouble == ErrorSource::full_disk) hosts.make_room(host_);
  if (trouble == ErrorSource::hung_config) job_.config_disk().go_on();
  return true;
}

bool Storm::come_back_as(int rank) {
  job_.start(rank, launch());
  return catch_up(rank);
}

// Rank 0 is killed; the others go on for a while, one of them even longer.
bool Storm::restart_job() {
  job_.slay(job_.life(0));
  hold();
  job_.status();  // Its epoch is to be known.
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
    if (status.ranks.empty()) continue;
    const RankStatus& late = status.ranks.at(static_cast<std::size_t>(rank));
    if (late.pid != job_.life(rank).own_pid) continue;  // Still the one before it.
    const auto first = std::max_element(status.ranks.begin(), status.ranks.end(),
                                        [](const auto& a, const auto& b) { return a.step < b.step; });
    const std::int64_t lag = first->step - late.step;
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
        return !status.ranks.empty() && std::all_of(status.ranks.begin(), status.ranks.end(), [&](const RankStatus& rank) {
          return rank.state != "absent" && rank.step > first_step_ + 1;
        });
      },
      kPatience);
}

// A hub that rank 0 has not come to yet answers that it knows no lead.
void Storm::ask_until_taken(Command command) {
  command.request_id = "change " + std::to_string(changes_) + " of launch " + std::to_string(launches_);
  const auto taken = [&] {
    const std::string said = job_.ask(command).message;
    return said != "no rank of this job has connected yet" && said != "the lead hub is not found yet";
  };
  if (!eventually(taken, kPatience)) note("nobody takes the command");
}

void Storm::change() {
  changes_ += 1;
  const std::int64_t times = pick(0, 1) == 0 ? pick(1, 5) : 1'000'000;
  const int way = pick(0, 3);
  note("change " + std::to_string(changes_) + " by way " + std::to_string(way));
  before_ = newest_revision();
  if (way == 0) {
    write_text(job_.config_path, config(true, times));
  } else if (way == 1) {
    std::ofstream(job_.config_path, std::ios::trunc) << config(true, times);
  } else if (way == 2) {
    Command command;
    command.verb = CommandVerb::on;
    command.by = "tester";
    command.collect_times = times;
    command.step_interval = 1 + changes_ % 3;
    ask_until_taken(std::move(command));
  } else {
    Command command;
    command.verb = CommandVerb::set;
    command.by = "tester";
    command.edits = {{"eps", std::to_string(1 + changes_) + "e-9"}, {"dynamic_on", "true"}};
    ask_until_taken(std::move(command));
  }
}

Revision Storm::newest_revision() {
  Revision newest;
  for (const HistoryEntry& entry : job_.history()) newest = std::max(newest, entry.revision, std::less<>());
  return newest;
}

// Decided, and in force on all ranks, but where it has run out before all were back.
bool Storm::settled() {
  const auto history = job_.history();
  if (history.empty() || !history.back().final || history.back().revision <= before_) return false;
  const HistoryEntry& newest = history.back();
  return newest.verdict == "commit" && (newest.finished_step >= 0 ||
                                        newest.applied.size() == static_cast<std::size_t>(job_.world()));
}

bool Storm::wait_until_settled() {
  if (eventually([&] { return settled(); }, kPatience)) return true;
  note("not settled: revision " + std::to_string(before_.value) + " before");
  return false;
}

bool Storm::switch_once() {
  const ErrorSource trouble = choose();
  if (!begin(trouble)) return false;
  change();
  if (pick(0, 4) == 0) change();
  if (!end(trouble)) return false;
  if (trouble == ErrorSource::restart) {
    before_ = {};
    note("restarted from step " + std::to_string(first_step_));
    change();
  }
  return pick(0, 4) == 0 || wait_until_settled();
}

bool Storm::come_to_rest() {
  if (!come_back()) return false;
  changes_ += 1;
  before_ = newest_revision();
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
    all.lapses.merge(one.lapses);
    all.ahead_of_its_death += one.ahead_of_its_death;
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
