// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/whole/chaos/audit.h"
#include "tests/whole/chaos/killable_job.h"

namespace gradmon {

// Changes the plan of a KillableJob again and again, under random faults: ranks (rank
// 0 too) and hubs are stopped and killed; with several hosts, links and disks fail.
// The seed fixes the order of events, but not their exact times.
class RandomFaults {
 public:
  static constexpr double kMaxWait = 1.5;  // seconds

  // The ranks are spread evenly over the hosts.
  RandomFaults(int world, unsigned seed, int hosts = 1);

  // One change of plan under one fault; mostly waits until the plan is in force on all
  // ranks. False if that takes more than three minutes: event_log() tells the events.
  bool change_plan_under_fault();
  // Without a fault: one last plan runs to its end. False if it does not in time.
  bool run_last_plan();

  // Of all launches. Call it after run_last_plan().
  Audit audit();
  // The events so far and all logs, for a failing test.
  std::string event_log() const;
  const KillableJob& job() const { return job_; }

 private:
  enum class FaultKind {
    none,
    stop,
    stop_two,
    stop_hub,
    kill,
    kill_hub,
    kill_hub_twice,
    kill_rank0_and_hub,
    restart,
    cut_link,   // several hosts only, from here on
    full_disk,  // that of a host's hub
    hung_config,
  };

  void note(const std::string& event);  // printed at once if GRADMON_CHAOS_VERBOSE is set
  FaultKind choose_fault();
  FaultKind choose_host_fault();
  bool prepare_fault(FaultKind fault);  // before the change: stops ranks
  bool inject_fault(FaultKind fault);   // after the change: everything else, and the repair
  bool inject_host_fault(FaultKind fault, int extra_ms);
  void change_plan();
  void ask_until_accepted(Command command);
  std::string config(bool on, std::int64_t times);
  bool wait_until_caught_up(int rank);
  bool wait_for_all_ranks();
  bool restart_rank(int rank);
  bool restart_job();
  Revision newest_revision();
  bool settled();
  bool wait_until_settled();
  void pause_at_random();
  void kill_victim();
  void kill_hub_of_host();
  std::string victim() const { return "rank " + std::to_string(victim_); }
  int next_to_victim() const { return (victim_ + 1) % job_.world(); }
  KillableJob::Start launch() const;
  int random_rank(int lowest) { return random_int(lowest, job_.world() - 1); }
  int random_int(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }

  std::mt19937 random_;
  int changes_ = 0;  // Keep before job_: its config contains it.
  KillableJob job_;
  const std::int64_t pace_since_;
  int launches_ = 1;
  std::int64_t first_step_ = 0;
  int victim_ = 0;
  int host_ = 0;                // the host whose hub, link or disk gets the fault
  Revision previous_revision_;  // the newest before the current change
  std::vector<std::string> events_;
};

}  // namespace gradmon
