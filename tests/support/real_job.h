// SPDX-License-Identifier: Apache-2.0
// A real job: `gradmonctl run` with several gradmon-train processes, in a
// directory of its own. It is asked and read from outside, as a user does it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
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
    std::vector<std::string> train;  // further arguments of gradmon-train
    std::string before;              // shell commands that each rank runs before gradmon-train
    bool dynamic = true;
  };

  // Starts the job.
  explicit RealJob(const Options& options);
  // Ends the job: SIGTERM to the launcher, after 15 s SIGKILL.
  ~RealJob();
  RealJob(const RealJob&) = delete;
  RealJob& operator=(const RealJob&) = delete;

  std::filesystem::path directory() const { return directory_.path(); }

  std::string config_text() const { return read_text(config_path); }

  // Asks the lead hub, as gradmonctl does. Repeats for 60 s until the job exists and
  // answers; the outcome is `failed` if it does not.
  CommandReply ask(Command command);
  CommandReply ask(CommandVerb verb) { return ask({verb, "", "tester", {}, {}, {}, {}}); }
  Status status() { return *ask(CommandVerb::status).status; }
  std::vector<HistoryEntry> history() { return ask(CommandVerb::history).history; }
  // Waits until every rank has connected. (A rank that connects after an off was
  // decided has nothing to apply.)
  bool wait_for_all_ranks();
  // Waits until `count` changes are decided for good and every rank has applied the
  // newest commit. The state "off" alone would not prove that: a rank that had lapsed
  // when an off was decided is off without having applied it.
  bool wait_for_changes(std::size_t count, std::chrono::milliseconds at_most = std::chrono::seconds(60));

  // Waits for the launcher: its exit code, or none if it still runs after `at_most`.
  std::optional<int> wait(std::chrono::milliseconds at_most = std::chrono::seconds(120));
  // Sends SIGTERM to the launcher and waits for its end, for 20 s at most.
  void end();
  std::string log() const { return read_text(directory_ / "log"); }

 private:
  pid_t launcher_ = -1;
  std::optional<int> code_;
};

// Starts a program without waiting for it; appends its output to `log`. The kernel kills
// the program when the calling thread ends: call it from the test's main thread. Throws
// if no process can be made.
pid_t start_program(const std::vector<std::string>& command, const std::filesystem::path& log,
                    const std::map<std::string, std::string>& environment);
// Runs a program to its end; appends its output to `log`. The exit code, or 128 + signal.
int run_program(const std::vector<std::string>& command, const std::filesystem::path& log,
                const std::map<std::string, std::string>& environment = {});
// The exit code in a status of waitpid(), or 128 + signal.
int exit_code_of(int status);
// The command of a gradmon-train whose steps take little time.
std::vector<std::string> small_training(const std::filesystem::path& config);
// build/PRESET/bin/NAME
std::string program(const std::string& name);

}  // namespace gradmon
