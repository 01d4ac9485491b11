// SPDX-License-Identifier: Apache-2.0
// The job under test: one availability-trainer process a rank, in directories of
// its own, and what can be done to it and asked of it from outside.
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

#include "tests/whole/availability/child.h"
#include "tests/whole/availability/step_barrier.h"
#include "tests/whole/availability/step_log.h"

namespace gradmon {

// Where jobs of a test lie; two jobs may share one. Paths are below one directory,
// each a directory of its own, so that a file system may be mounted there.
struct JobPlaces {
  explicit JobPlaces(const std::filesystem::path& directory, uid_t user = 0);

  std::filesystem::path output;
  std::filesystem::path config_directory;
  std::filesystem::path config;
  std::filesystem::path runtime;  // XDG_RUNTIME_DIR
  std::filesystem::path logs;     // the test's own: never disturbed
  // The programs of a job. Another user may not reach the build directory, so its jobs have links here.
  std::filesystem::path programs;
};

struct JobOptions {
  int world = 3;
  std::string launch = "first";
  uid_t user = 0;  // 0: the test's own
  std::chrono::milliseconds step_time{15};
  std::map<int, std::vector<std::string>> trainer;  // further arguments, by rank
  std::map<int, std::vector<std::string>> before;   // words in front of the trainer's, by rank
  int error = -1;                                   // descriptor for standard error of all ranks
};

class TrainingJob {
 public:
  // One process of a rank.
  struct Life {
    std::unique_ptr<Child> process;
    std::filesystem::path steps;   // StepLog
    std::filesystem::path output;  // what it printed
    // When it stood still by SIGSTOP, us.
    std::vector<std::pair<std::int64_t, std::int64_t>> stopped;
    bool killed = false;
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
  Life& life(int rank) { return lives_.at(rank); }

  void start_all();
  void start(int rank, std::int64_t first_step);
  // Until all ranks that the job has are heard and step.
  bool wait_until_it_runs();

  void stop_rank(int rank);      // SIGSTOP
  void continue_rank(int rank);  // SIGCONT
  void kill_rank(int rank);      // SIGKILL; nobody waits for it any more
  // Shuts the rank's connection to its hub down, from outside. False: it has none.
  bool cut_connection(int rank);
  // -1: there is none.
  pid_t hub() const;
  void signal_hub(int number) const;

  std::filesystem::path job_directory() const { return places_.runtime / "gradmon" / options_.launch; }
  std::filesystem::path socket() const { return job_directory() / "hub.sock"; }

  // gradmonctl as a user calls it, who knows the output directory.
  Answer ctl(std::vector<std::string> words,
             std::chrono::milliseconds at_most = std::chrono::seconds(10)) const;
  ChildOptions ctl_options(std::vector<std::string> words) const;
  // Of `gradmonctl status --json`; null where it does not answer.
  nlohmann::json status() const;
  // By socket in place of the output directory, which two jobs share.
  void ask_by_socket() { by_socket_ = true; }

  // Takes down what the job's history says, to be asked for when it is over.
  void keep_history();
  // By the step at which a rank applied them: revisions, as that history says.
  const std::map<std::int64_t, std::uint64_t>& applied(int rank) { return applied_[rank]; }

  std::map<int, StepLogContent> steps() const;  // by rank: its newest process
  // Says which step is the last, and waits for all processes. The exit codes.
  std::map<int, std::optional<int>> end(std::chrono::milliseconds at_most);
  // What all processes and the hub have printed, for a failing test.
  std::string output() const;

 private:
  std::map<std::string, std::string> environment(int rank) const;

  const JobPlaces places_;
  const JobOptions options_;
  std::unique_ptr<StepBarrier> barrier_;
  std::map<int, Life> lives_;
  std::vector<Life> former_;
  std::map<int, std::map<std::int64_t, std::uint64_t>> applied_;  // by rank
  int started_ = 0;
  bool by_socket_ = false;
};

}  // namespace gradmon
