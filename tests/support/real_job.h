// SPDX-License-Identifier: Apache-2.0
// A real job: `gradmonctl run` with several gradmon-train processes, in a
// directory of its own, and what can be read of it from outside.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/wire/command.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {

class RealJob {
  const TemporaryDirectory directory_;  // Keep first: the paths are below it.

 public:
  const std::filesystem::path config_path = directory_ / "monitor_config.json";
  const std::filesystem::path output_dir = directory_ / "out";

  struct Options {
    int world = 2;
    std::string config = "{}";
    std::vector<std::string> train;  // more arguments of gradmon-train
    std::string before;              // shell commands each rank runs first
    bool dynamic = true;
  };

  // Starts it.
  explicit RealJob(const Options& options);
  // Ends it, if need be with SIGKILL.
  ~RealJob();
  RealJob(const RealJob&) = delete;
  RealJob& operator=(const RealJob&) = delete;

  std::filesystem::path directory() const { return directory_.path(); }

  std::string config_text() const { return read_text(config_path); }

  // Asks rank 0, as gradmonctl does; repeats while there is no job to be found yet.
  CommandReply ask(Command command);
  CommandReply ask(CommandVerb verb) { return ask({verb, "", "tester", {}, {}, {}, {}}); }
  Status status() { return *ask(CommandVerb::status).status; }
  std::vector<HistoryEntry> history() { return ask(CommandVerb::history).history; }
  // Until every rank has come: one that comes after an off has been decided has nothing to apply.
  bool wait_for_all_ranks();
  // Until `count` changes are decided for good and every rank is at the newest commit: one that
  // had lapsed as an off was decided has not applied that, but counts as off.
  bool wait_for_changes(std::size_t count, std::chrono::milliseconds at_most = std::chrono::seconds(60));

  // The launcher's exit code; none where it has not ended in time (it goes on).
  std::optional<int> wait(std::chrono::milliseconds at_most = std::chrono::seconds(120));
  // SIGTERM to the launcher, and waits for it.
  void end();
  std::string log() const { return read_text(directory_ / "log"); }

 private:
  pid_t launcher_ = -1;
  std::optional<int> code_;
};

// Starts a program and does not wait for it; its output is appended to `log`.
pid_t start_program(const std::vector<std::string>& command, const std::filesystem::path& log,
                    const std::map<std::string, std::string>& environment);
// Runs a program to its end; its exit code. Output goes to `log`.
int run_program(const std::vector<std::string>& command, const std::filesystem::path& log,
                const std::map<std::string, std::string>& environment = {});
// build/PRESET/bin/NAME
std::string program(const std::string& name);
// 40 here is 200 with GRADMON_TEST_SCALE=full.
int scaled(int quick, int full);

}  // namespace gradmon
