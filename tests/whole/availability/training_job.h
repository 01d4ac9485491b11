// SPDX-License-Identifier: Apache-2.0
// The job under test: one availability-trainer process for each rank, in directories
// of its own. The test stops, kills and queries it from outside.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/whole/availability/child_process.h"
#include "tests/whole/availability/step_files.h"

namespace gradmon {

// The directories of a job; two jobs may share them. Each is a directory of its own below
// one parent, so that a file system can be mounted there.
struct JobPlaces {
  explicit JobPlaces(const std::filesystem::path& directory, uid_t user = 0);

  std::filesystem::path output;
  std::filesystem::path config_directory;
  std::filesystem::path config;
  std::filesystem::path runtime;  // XDG_RUNTIME_DIR
  std::filesystem::path logs;     // used by the test only: no fault hits it
  // The programs of a job. Another user may not reach the build directory, so its jobs have links here.
  std::filesystem::path programs;
};

struct JobOptions {
  int world = 3;
  std::string launch_id = "first";
  uid_t user = 0;  // 0: the test's user
  std::chrono::milliseconds step_time{15};
  std::map<int, std::vector<std::string>> trainer_arguments;  // more arguments of the trainer, by rank
  std::map<int, std::vector<std::string>> command_prefix;     // words before the trainer's command, by rank
  int stderr_descriptor = -1;                                 // standard error of all ranks; -1: their output
};

class TrainingJob {
 public:
  // One process of a rank.
  struct RankProcess {
    std::unique_ptr<ChildProcess> process;
    std::filesystem::path steps;   // StepLog
    std::filesystem::path output;  // what it printed
    // From SIGSTOP to SIGCONT, us of the monotonic clock.
    std::vector<std::pair<std::int64_t, std::int64_t>> stopped;
  };

  TrainingJob(JobPlaces places, JobOptions options);
  ~TrainingJob();
  TrainingJob(const TrainingJob&) = delete;
  TrainingJob& operator=(const TrainingJob&) = delete;

  const JobPlaces& places() const { return places_; }
  const JobOptions& options() const { return options_; }
  int world() const { return options_.world; }
  StepBarrier& barrier() { return *barrier_; }
  // The newest process of a rank.
  RankProcess& rank_process(int rank) { return processes_.at(rank); }

  void start_all();
  void start(int rank, std::int64_t first_step);
  // Waits until every rank steps and none is absent in status.
  bool wait_until_running();

  void stop_rank(int rank);      // SIGSTOP
  void continue_rank(int rank);  // SIGCONT
  void kill_rank(int rank);      // SIGKILL; the rank leaves the barrier
  // Shuts down the rank's connection to its hub, from outside. False: there is none.
  bool cut_connection(int rank);
  // The pid of the job's hub; -1: none runs.
  pid_t hub() const;
  void signal_hub(int number) const;

  std::filesystem::path job_directory() const { return places_.runtime / "gradmon" / options_.launch_id; }
  std::filesystem::path socket() const { return job_directory() / "hub.sock"; }

  // Runs gradmonctl with --output-dir, or with --endpoint after ask_by_socket().
  ProcessResult run_gradmonctl(std::vector<std::string> words,
                               std::chrono::milliseconds at_most = std::chrono::seconds(10)) const;
  ProcessOptions gradmonctl_options(std::vector<std::string> words) const;
  // The answer of `gradmonctl status --json`; null if it fails.
  nlohmann::json status() const;
  // gradmonctl asks the hub's socket from now on. For two jobs that share an output directory.
  void ask_by_socket() { by_socket_ = true; }

  // Stores the job's history for applied(). Call before end(). False: gradmonctl failed, nothing is stored.
  bool store_history();
  // The revisions that a rank applied, by applied step, from the stored history.
  const std::map<std::int64_t, std::uint64_t>& applied(int rank) { return applied_[rank]; }

  std::map<int, StepLogContent> steps() const;  // of each rank's newest process
  // Sets the last step, a few steps ahead, and waits for all processes. Exit codes as ChildProcess::wait().
  std::map<int, std::optional<int>> end(std::chrono::milliseconds at_most);
  // The output of all processes, and hub.log: for a failing test.
  std::string output() const;

 private:
  std::map<std::string, std::string> environment(int rank) const;

  const JobPlaces places_;
  const JobOptions options_;
  std::unique_ptr<StepBarrier> barrier_;
  std::map<int, RankProcess> processes_;
  std::vector<RankProcess> ended_processes_;
  std::map<int, std::map<std::int64_t, std::uint64_t>> applied_;  // by rank
  int started_ = 0;
  bool by_socket_ = false;
};

}  // namespace gradmon
