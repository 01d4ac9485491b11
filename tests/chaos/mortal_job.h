// SPDX-License-Identifier: Apache-2.0
// A job of gradmon-train processes that are started, stopped, cut off and
// killed one by one. All speak with rank 0 through a LinkProxy, and each has an
// output directory of its own in which the register is a link that can be cut.
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

#include "control/net/command.h"
#include "tests/chaos/link_proxy.h"
#include "tests/temporary_directory.h"

namespace gradmon {

// One process of a rank, from its start to its end.
struct Life {
  int rank = 0;
  std::string launch;
  std::int64_t first_step = 0;
  pid_t pid = -1;
  std::filesystem::path log;       // what it printed
  std::filesystem::path step_log;  // gradmon-train --step-log
  std::int64_t started = 0;        // wall time, ms
  // When it was stopped (SIGSTOP), in microseconds of the monotonic clock.
  std::vector<std::pair<std::int64_t, std::int64_t>> stopped;
  std::optional<int> code;  // exit code, 128 + signal; none while it lives

  bool lives() const { return !code.has_value(); }
};

class MortalJob {
  const TemporaryDirectory directory_;  // Keep first: the paths are below it.

 public:
  const std::filesystem::path config_path = directory_ / "monitor_config.json";

  struct Start {
    std::string launch = "first";
    std::int64_t first_step = 0;
    int world = 0;                   // 0: that of the job
    std::vector<std::string> train;  // more arguments of gradmon-train
  };

  // `world`: the most ranks it will have. Starts none.
  MortalJob(int world, const std::string& config);
  // Kills all that live.
  ~MortalJob();
  MortalJob(const MortalJob&) = delete;
  MortalJob& operator=(const MortalJob&) = delete;

  LinkProxy& links() { return *links_; }
  int world() const { return world_; }
  const std::deque<Life>& lives() const { return lives_; }
  // The newest process of a rank.
  Life& life(int rank);

  Life& start(int rank, const Start& start);
  void start_all(const Start& start);
  void freeze(Life& life);  // SIGSTOP, and waits until it stands still
  void thaw(Life& life);    // SIGCONT
  void slay(Life& life);    // SIGKILL, and waits for its end
  void slay_all();
  // The exit code; none where it has not ended in time.
  std::optional<int> wait(Life& life, std::chrono::milliseconds at_most = std::chrono::seconds(60));
  // The register is not to be seen by a rank, and again.
  void cut_register(int rank);
  void restore_register(int rank);

  // Asks rank 0, past the proxy; repeats for `at_most` while nobody answers.
  CommandReply ask(Command command, std::chrono::milliseconds at_most = std::chrono::seconds(60));
  CommandReply ask(CommandVerb verb) { return ask({verb, "", "tester", {}, {}, {}, {}}); }
  Status status();
  std::vector<HistoryEntry> history();

  std::filesystem::path output_dir(int rank) const { return directory_ / ("rank" + std::to_string(rank)); }
  std::filesystem::path register_dir() const { return directory_ / "register"; }
  // By launch, once status or history has been asked for in it.
  const std::map<std::string, std::string>& epochs() const { return epochs_; }
  // What all processes have printed, for a failing test.
  std::string logs() const;

 private:
  std::string endpoint() const { return "ipc://" + (directory_ / "control").string(); }

  const int world_;
  const std::unique_ptr<LinkProxy> links_;
  std::deque<Life> lives_;
  std::map<std::string, std::string> epochs_;
};

}  // namespace gradmon
