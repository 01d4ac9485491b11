// SPDX-License-Identifier: Apache-2.0
#include "tests/support/real_job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string_view>

#include "control/host/child_process.h"
#include "control/hub/transport/command_client.h"
#include "control/hub/transport/rendezvous.h"

namespace gradmon {

namespace fs = std::filesystem;

int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

std::string program(const std::string& name) { return std::string(GRADMON_BIN) + "/" + name; }

std::vector<std::string> small_training(const fs::path& config) {
  return {program("gradmon-train"),
          "--config",
          config.string(),
          "--threads",
          "1",
          "--layers",
          "1",
          "--width",
          "8",
          "--context",
          "8",
          "--batch",
          "1"};
}

pid_t start_program(const std::vector<std::string>& command, const fs::path& log,
                    const std::map<std::string, std::string>& environment) {
  const pid_t child = fork();
  // A caller would pass -1 to kill(), which then kills all processes of this user.
  if (child < 0) throw std::runtime_error("cannot start " + command.front() + ": fork failed");
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

int run_program(const std::vector<std::string>& command, const fs::path& log,
                const std::map<std::string, std::string>& environment) {
  int status = 0;
  waitpid(start_program(command, log, environment), &status, 0);
  return exit_code_of(status);
}

RealJob::RealJob(const Options& options) {
  write_text(config_path, options.config);
  std::string train = options.before + " exec";
  for (const std::string& argument : small_training(config_path)) train += " " + argument;
  for (const std::string& argument : options.train) train += " " + argument;
  launcher_ = start_program(
      {program("gradmonctl"), "run", "-n", std::to_string(options.world), "--", "sh", "-c", train},
      directory_ / "log",
      {{"MONITOR_OUTPUT_DIR", output_dir.string()},
       {"XDG_RUNTIME_DIR", directory_.path().string()},
       {"DYNAMIC_MONITOR", options.dynamic ? "True" : "False"}});
}

RealJob::~RealJob() {
  if (code_) return;
  kill(launcher_, SIGTERM);
  if (!wait(std::chrono::seconds(15))) {
    kill(launcher_, SIGKILL);
    waitpid(launcher_, nullptr, 0);
  }
}

std::optional<int> RealJob::wait(std::chrono::milliseconds at_most) {
  eventually(
      [&] {
        int status = 0;
        if (!code_ && waitpid(launcher_, &status, WNOHANG) == launcher_) code_ = exit_code_of(status);
        return code_.has_value();
      },
      at_most);
  return code_;
}

void RealJob::end() {
  if (!code_) kill(launcher_, SIGTERM);
  wait(std::chrono::seconds(20));
}

CommandReply RealJob::ask(Command command) {
  if (command.request_id.empty()) command.request_id = random_hex(8);
  CommandReply reply;
  reply.outcome = CommandOutcome::failed;
  eventually(
      [&] {
        const auto jobs = read_entries(output_dir);
        // A launcher that has ended makes no job any more.
        if (jobs.empty()) return wait(std::chrono::milliseconds(0)).has_value();
        auto answer = CommandClient(jobs.front().endpoint).ask(command, std::chrono::seconds(5));
        if (answer) reply = std::move(*answer);
        return answer.has_value();
      },
      std::chrono::seconds(60));
  if (command.verb == CommandVerb::status && !reply.status) reply.status = Status{};
  return reply;
}

bool RealJob::wait_for_all_ranks() {
  return eventually(
      [&] {
        const Status now = status();
        return now.mode == "dynamic" && std::none_of(now.ranks.begin(), now.ranks.end(),
                                                     [](const auto& rank) { return rank.state == "absent"; });
      },
      std::chrono::seconds(60));
}

bool RealJob::wait_for_changes(std::size_t count, std::chrono::milliseconds at_most) {
  return eventually(
      [&] {
        const auto entries = history();
        Revision newest;
        std::size_t decided = 0;
        for (const HistoryEntry& entry : entries) {
          if (entry.verdict.empty()) return false;
          decided += entry.final ? 1 : 0;  // else it was tried again
          if (entry.verdict == "commit") newest = std::max(newest, entry.revision, std::less<>());
        }
        if (decided < count || !entries.back().final) return false;
        const auto ranks = status().ranks;
        return std::none_of(ranks.begin(), ranks.end(),
                            [&](const auto& rank) { return rank.revision < newest; });
      },
      at_most);
}

}  // namespace gradmon
