// SPDX-License-Identifier: Apache-2.0
// A job whose gradmon-train processes and hubs are started, stopped and killed one
// by one. Each launch has its own output directory.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/wire/command.h"
#include "tests/support/store_server.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/availability/disks.h"
#include "tests/whole/hosts/virtual_hosts.h"

namespace gradmon {

// One process of a rank, from its start to its end.
struct RankRun {
  int rank = 0;
  std::string launch;
  std::int64_t first_step = 0;
  pid_t pid = -1;
  pid_t pid_on_host = -1;          // in the pid namespace of its host
  std::filesystem::path log;       // its output
  std::filesystem::path step_log;  // gradmon-train --step-log
  std::int64_t started = 0;        // wall time, ms
  // From when to when SIGSTOP held it, in microseconds of the monotonic clock.
  std::vector<std::pair<std::int64_t, std::int64_t>> stopped;
  std::optional<int> code;  // exit code, or 128 + signal; none until it is waited for
  bool killed = false;      // by kill(); false if it had ended before
  std::int64_t ended = 0;   // when it was killed, in microseconds of the monotonic clock

  bool running() const { return !code.has_value(); }
};

class KillableJob {
  const TemporaryDirectory directory_;  // Keep first: the paths are below it.

 public:
  const std::filesystem::path config_path = directory_ / "disk" / "monitor_config.json";

  struct Start {
    std::string launch = "first";
    std::int64_t first_step = 0;
    int world = 0;                   // 0: all ranks of the job
    std::vector<std::string> train;  // further arguments of gradmon-train
  };

  // Starts no rank. `world`: the largest number of ranks. `hosts`: the ranks are spread
  // evenly over them; more than one host needs root.
  KillableJob(int world, const std::string& config, int hosts = 1);
  // Kills all ranks and hubs that still run.
  ~KillableJob();
  KillableJob(const KillableJob&) = delete;
  KillableJob& operator=(const KillableJob&) = delete;

  int world() const { return world_; }
  const std::deque<RankRun>& runs() const { return runs_; }
  // The newest process of a rank.
  RankRun& run(int rank);

  RankRun& start(int rank, const Start& start);
  void start_all(const Start& start);
  void stop(RankRun& run);    // SIGSTOP, and waits until it has stopped
  void resume(RankRun& run);  // SIGCONT
  void kill(RankRun& run);    // SIGKILL, and waits for its end
  void kill_all();            // all ranks
  // Sets the exit codes of the processes that have ended by themselves.
  void collect_exit_codes();
  // Waits for its end: the exit code, or none if it still runs after `at_most`.
  std::optional<int> wait(RankRun& run, std::chrono::milliseconds at_most = std::chrono::seconds(60));

  int hosts() const { return hosts_ ? hosts_->count() : 1; }
  // Null with one host.
  const IsolatedHosts* isolated_hosts() const { return hosts_.get(); }
  // The file system of the config. Only with several hosts.
  HangingDisk& config_disk() { return *config_disk_; }

  // The hubs of the newest launch on a host: one, or none while it is restarted.
  std::vector<pid_t> hubs(int host = 0) const;
  std::optional<pid_t> hub(int host = 0) const;
  // Sends a signal to that hub, if there is one.
  void signal_hub(int signal, int host = 0) const;
  // SIGKILL to that hub, and waits for its end. `directory_too`: removes its directory
  // first, so that the next hub knows nothing.
  void kill_hub(bool directory_too = false, int host = 0) const;

  // Asks the lead hub of the newest launch; repeats for `at_most` until it answers.
  CommandReply ask(Command command, std::chrono::milliseconds at_most = std::chrono::seconds(60));
  CommandReply ask(CommandVerb verb);
  Status status();
  std::vector<HistoryEntry> history();

  std::filesystem::path output_dir(const std::string& launch) const { return directory_ / ("out " + launch); }
  // By launch; known after status() or history() in that launch.
  const std::map<std::string, std::string>& epochs() const { return epochs_; }
  // The output of all ranks and hubs, for a failing test.
  std::string logs() const;

 private:
  std::filesystem::path hub_directory() const;
  std::filesystem::path runtime_directory() const;
  std::map<std::string, std::string> environment_of(int rank, int world, const Start& start) const;

  const int world_;
  std::unique_ptr<HangingDisk> config_disk_;  // null: one host
  std::unique_ptr<StoreServer> store_;        // likewise
  std::unique_ptr<IsolatedHosts> hosts_;      // likewise
  std::string launch_;                        // the newest
  std::deque<RankRun> runs_;
  std::map<std::string, std::string> epochs_;
};

}  // namespace gradmon
