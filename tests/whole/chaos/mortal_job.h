// SPDX-License-Identifier: Apache-2.0
// A job of gradmon-train processes that are started, stopped and killed one by
// one, and so is the hub that they start. Each launch has an output directory.
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
#include "tests/whole/hosts/isolated_hosts.h"

namespace gradmon {

// One process of a rank, from its start to its end.
struct Life {
  int rank = 0;
  std::string launch;
  std::int64_t first_step = 0;
  pid_t pid = -1;
  pid_t own_pid = -1;  // as it is in its host's pid namespace
  std::filesystem::path log;       // what it printed
  std::filesystem::path step_log;  // gradmon-train --step-log
  std::int64_t started = 0;        // wall time, ms
  // When it was stopped (SIGSTOP), in microseconds of the monotonic clock.
  std::vector<std::pair<std::int64_t, std::int64_t>> stopped;
  std::optional<int> code;  // exit code, 128 + signal; none while it lives
  std::int64_t ended = 0;   // when it was killed, in microseconds of the monotonic clock

  bool lives() const { return !code.has_value(); }
  bool killed() const { return !lives() && *code != 0; }
};

class MortalJob {
  const TemporaryDirectory directory_;  // Keep first: the paths are below it.

 public:
  const std::filesystem::path config_path = directory_ / "disk" / "monitor_config.json";

  struct Start {
    std::string launch = "first";
    std::int64_t first_step = 0;
    int world = 0;                   // 0: that of the job
    std::vector<std::string> train;  // more arguments of gradmon-train
  };

  // `world`: the most ranks it will have. Starts none.
  // `hosts`: as many ranks on each; more than one need root.
  MortalJob(int world, const std::string& config, int hosts = 1);
  // Kills all that live, hubs too.
  ~MortalJob();
  MortalJob(const MortalJob&) = delete;
  MortalJob& operator=(const MortalJob&) = delete;

  int world() const { return world_; }
  const std::deque<Life>& lives() const { return lives_; }
  // The newest process of a rank.
  Life& life(int rank);

  Life& start(int rank, const Start& start);
  void start_all(const Start& start);
  void freeze(Life& life);  // SIGSTOP, and waits until it stands still
  void thaw(Life& life);    // SIGCONT
  void slay(Life& life);    // SIGKILL, and waits for its end
  void slay_all();          // all ranks
  // The exit code; none where it has not ended in time.
  std::optional<int> wait(Life& life, std::chrono::milliseconds at_most = std::chrono::seconds(60));

  int hosts() const { return hosts_ ? hosts_->count() : 1; }
  // Null where there is but this one.
  const IsolatedHosts* isolated_hosts() const { return hosts_.get(); }
  // Of several hosts, for the config's.
  HangingDisk& config_disk() { return *config_disk_; }

  // The hubs of the newest launch on a host: one, or none for a moment.
  std::vector<pid_t> hubs(int host = 0) const;
  std::optional<pid_t> hub(int host = 0) const;
  // To that hub, where there is one: SIGSTOP, SIGCONT, SIGKILL.
  void signal_hub(int signal, int host = 0) const;
  // With SIGKILL, and waits for its end; `directory_too`: with all that it knew.
  void slay_hub(bool directory_too = false, int host = 0) const;

  // Asks the newest launch; repeats for `at_most` while nobody answers.
  CommandReply ask(Command command, std::chrono::milliseconds at_most = std::chrono::seconds(60));
  CommandReply ask(CommandVerb verb);
  Status status();
  std::vector<HistoryEntry> history();

  std::filesystem::path output_dir(const std::string& launch) const { return directory_ / ("out " + launch); }
  // By launch, once status or history has been asked for in it.
  const std::map<std::string, std::string>& epochs() const { return epochs_; }
  // What all processes have printed, for a failing test.
  std::string logs() const;

 private:
  std::filesystem::path hub_directory() const;
  std::filesystem::path runtime_directory() const;
  std::map<std::string, std::string> environment_of(int rank, int world, const Start& start) const;

  const int world_;
  std::unique_ptr<HangingDisk> config_disk_;  // null: one host
  std::unique_ptr<StoreServer> store_;        // likewise
  std::unique_ptr<IsolatedHosts> hosts_;      // likewise
  std::string launch_;  // the newest
  std::deque<Life> lives_;
  std::map<std::string, std::string> epochs_;
};

}  // namespace gradmon
