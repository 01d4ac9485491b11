// SPDX-License-Identifier: Apache-2.0
#include "tests/benchmarks/local_rank.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "control/host/boot_clock.h"
#include "control/host/job_directory.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;

AgentCalls calls() {
  return {[](const Plan&) -> tl::expected<std::int64_t, std::string> { return 1; },
          [] { return CollectingReport{}; }};
}

}  // namespace

std::filesystem::path make_job_socket(const std::string& launch_id) {
  const auto directory = make_job_directory(launch_id);
  if (!directory) throw std::runtime_error(directory.error());
  return directory->socket();
}

void VerdictTimes::note(Revision revision, Step from, SteadyTime heard) {
  const std::lock_guard lock(mutex_);
  Heard& entry = heard_[revision.value];
  entry.ranks += 1;
  entry.from = std::max(entry.from, from);
  entry.last = std::max(entry.last, heard);
  changed_.notify_all();
}

std::optional<std::pair<Revision, SteadyTime>> VerdictTimes::wait_for(int ranks, Revision last) {
  std::unique_lock lock(mutex_);
  auto found = heard_.end();
  const bool heard = changed_.wait_for(lock, std::chrono::seconds(10), [&] {
    found = std::find_if(heard_.upper_bound(last.value), heard_.end(),
                         [&](const auto& entry) { return entry.second.ranks == ranks; });
    return found != heard_.end();
  });
  if (!heard) return {};
  return std::pair{Revision{found->first}, found->second.last};
}

Step VerdictTimes::step_of(Revision revision) {
  const std::lock_guard lock(mutex_);
  return heard_.at(revision.value).from;
}

LocalRank::LocalRank(const AgentOptions& options, SteadyTime zero, std::chrono::microseconds pace,
                     VerdictTimes& times)
    : zero_(zero),
      pace_(pace),
      times_(times),
      gate_(options.start_iteration),
      agent_(options, gate_, calls()),
      trainer_([this] { train(); }) {}

LocalRank::~LocalRank() {
  stopping_ = true;
  trainer_.join();
}

void LocalRank::train() {
  std::int64_t n = 0;
  for (; !stopping_; ++n) {
    if (!gate_.try_begin(Step{n})) pass_gate(Step{n});
    if (n == 0) agent_.start();
    std::this_thread::sleep_until(zero_ + (n + 1) * pace_);  // The length of a step.
  }
  agent_.stop(Step{n - 1});
}

void LocalRank::pass_gate(Step n) {
  Opening opening = gate_.begin(n, boot_now());
  if (opening.wait) {
    opening = gate_.begin_or_wait(n, boot_now, [this] { return stopping_.load(); });
    released_ = Clock::now();
  }
  if (opening.swap) {
    in_force_ = opening.swap->revision;
    const SteadyTime now = Clock::now();
    times_.note(in_force_, n, std::exchange(released_, {}).value_or(now));
    agent_.plan_swapped();
  }
  if (opening.ended) agent_.rows_on_disk(in_force_);
}

}  // namespace gradmon
