// SPDX-License-Identifier: Apache-2.0
// Ranks without torch: the real agent, gate, hub and config file, and a training thread that
// only counts steps.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "control/link/agent.h"

namespace gradmon {

using SteadyTime = std::chrono::steady_clock::time_point;

// The times at which the ranks of a job heard each verdict. Any thread.
class VerdictTimes {
 public:
  void note(Revision revision, Step from, SteadyTime heard);
  // Waits for the first revision after `last` that `ranks` ranks have applied; returns it and
  // the time when the last of them heard its verdict. nullopt after 10 s: a rank that has
  // lapsed does not hear the verdict of an off.
  std::optional<std::pair<Revision, SteadyTime>> wait_for(int ranks, Revision last);
  // The step from which all ranks had applied the revision.
  Step step_of(Revision revision);

 private:
  struct Heard {
    int ranks = 0;
    Step from;
    SteadyTime last{};
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Heard> heard_;  // guarded by mutex_
};

// Makes the directory of a job on this host; returns its hub's socket. Throws std::runtime_error.
std::filesystem::path make_job_socket(const std::string& launch_id);

class LocalRank {
 public:
  // Step n begins at `zero` + n · `pace`, unless the gate delays it. So the ranks of one job
  // run the same step.
  LocalRank(const AgentOptions& options, SteadyTime zero, std::chrono::microseconds pace,
            VerdictTimes& times);
  ~LocalRank();
  LocalRank(const LocalRank&) = delete;
  LocalRank& operator=(const LocalRank&) = delete;

  Status status() const { return agent_.status(); }

 private:
  void train();
  void pass_gate(Step n);

  // Constant after construction.
  const SteadyTime zero_;
  const std::chrono::microseconds pace_;
  VerdictTimes& times_;  // own synchronisation

  std::atomic<bool> stopping_{false};
  // Trainer thread only: when the gate last released it; unset if not since the last plan.
  std::optional<SteadyTime> released_;
  Revision in_force_;
  StepGate gate_;  // own synchronisation
  Agent agent_;
  // Keep last: the thread uses the other members.
  std::thread trainer_;
};

}  // namespace gradmon
