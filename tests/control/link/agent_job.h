// SPDX-License-Identifier: Apache-2.0
// A whole job without torch: real agents in this process, the real gradmon-hub, and
// trainers that only count steps.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>

#include "control/host/job_directory.h"
#include "control/link/agent.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {

// The pace of the ranks of a measured job: step n begins at `zero` + n · `pause` on all of them, unless the
// gate delays it. `on_plan` hears of each plan, with the time when the gate last released the rank, or now if
// it has not since the last plan; it is called on the threads of all trainers.
struct MeasuredPace {
  using Time = std::chrono::steady_clock::time_point;
  Time zero;
  std::chrono::microseconds pause;
  std::function<void(Revision, Step, Time heard)> on_plan;
};

// One rank. Its trainer thread begins a step every `pause`, or at the measured pace.
class AgentRank {
 public:
  AgentRank(const AgentOptions& options, std::chrono::microseconds pause);
  AgentRank(const AgentOptions& options, MeasuredPace pace);
  ~AgentRank() { stop(); }
  AgentRank(const AgentRank&) = delete;
  AgentRank& operator=(const AgentRank&) = delete;
  void stop();

  Agent& agent() { return agent_; }
  std::int64_t step() const { return step_; }
  // The longest time between two steps.
  std::chrono::milliseconds longest_pause() const { return std::chrono::milliseconds(longest_pause_); }
  void forget_pauses() { longest_pause_ = 0; }

  // Collected steps that count, with the revision that collected them. Read it after
  // stop() only.
  std::map<std::int64_t, std::uint64_t> collected;

 private:
  void train();
  Opening pass_gate(Step n, Revision& revision);

  const Step start_;
  const MeasuredPace pace_;
  std::optional<MeasuredPace::Time> released_;  // by the gate, since the last plan; trainer thread
  std::atomic<bool> stopping_{false};
  std::atomic<std::int64_t> step_{-1};
  std::atomic<std::int64_t> longest_pause_{0};
  SharedGate gate_;
  Agent agent_;
  std::thread trainer_;
};

// The process that listens on a hub's socket; 0: none.
pid_t listening_process(const std::filesystem::path& socket);
// The hub ends by itself after its last rank. Waits for that, because its directory must outlive it. Kills
// the hub if it does not end within 10 s.
void wait_for_end_of_hub(const std::filesystem::path& socket);

class AgentJob {
 public:
  // `pace`: of all ranks; null: each rank has its own.
  explicit AgentJob(int world, const std::string& config, AgentOptions options = {},
                    const MeasuredPace* pace = nullptr);
  ~AgentJob();
  AgentJob(const AgentJob&) = delete;
  AgentJob& operator=(const AgentJob&) = delete;

  std::filesystem::path config_path() const { return scratch_ / "config.json"; }
  const JobDirectory& directory() const { return directory_; }
  AgentRank& rank(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  // The options of the rank, for another process of the job.
  AgentOptions options(int rank) const;
  void stop();

  CommandReply ask(const Command& command);
  CommandReply ask(CommandVerb verb, std::string request_id = "");
  Status status() { return ask(CommandVerb::status).status.value_or(Status{}); }
  // Waits until the change is decided and, if it is done, applied on all ranks. Throws after 20 s.
  CommandReply wait_until_settled(const std::string& request_id);
  std::vector<HistoryEntry> history() { return ask(CommandVerb::history).history; }
  // The process that listens on the hub's socket; 0: none.
  pid_t hub_pid() const { return listening_process(directory_.socket()); }
  // Stops all ranks. The first step collected under two revisions; "" if there is none.
  std::string divergence();

 private:
  const TemporaryDirectory scratch_;
  AgentOptions options_;
  JobDirectory directory_;
  std::vector<std::unique_ptr<AgentRank>> ranks_;
};

// The options of a new job whose files are in `scratch`: environment, launch id, output, config.
AgentOptions options_in(const std::filesystem::path& scratch, AgentOptions options);

}  // namespace gradmon
