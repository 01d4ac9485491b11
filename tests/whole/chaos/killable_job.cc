// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/chaos/killable_job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "control/host/child_process.h"
#include "control/host/job_directory.h"
#include "control/hub/transport/command_client.h"
#include "tests/support/process_figures.h"
#include "tests/support/real_job.h"
#include "tests/whole/availability/step_files.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

// The pid of a process in its own pid namespace: the last number of NSpid.
pid_t pid_on_host_of(pid_t process) {
  const std::string status = read_text("/proc/" + std::to_string(process) + "/status");
  const std::size_t line = status.find("NSpid:");
  if (line == std::string::npos) return process;
  const std::string numbers = status.substr(line, status.find('\n', line) - line);
  return static_cast<pid_t>(std::stol(numbers.substr(numbers.find_last_of(" \t"))));
}

}  // namespace

KillableJob::KillableJob(int world, const std::string& config, int hosts) : world_(world) {
  fs::create_directories(config_path.parent_path());
  if (hosts > 1) {
    if (const std::string why = isolate_mounts(); !why.empty()) throw std::runtime_error(why);
    config_disk_ = std::make_unique<HangingDisk>(config_path.parent_path());
    hosts_ = std::make_unique<IsolatedHosts>(hosts, runtime_directory());
    store_ = std::make_unique<StoreServer>(HostNetwork::switch_address());
  }
  write_text(config_path, config);
}

KillableJob::~KillableJob() {
  kill_all();
  for (const pid_t hub : hubs_below(directory_.path())) ::kill(hub, SIGKILL);
}

RankRun& KillableJob::run(int rank) {
  const auto found =
      std::find_if(runs_.rbegin(), runs_.rend(), [&](const RankRun& run) { return run.rank == rank; });
  if (found == runs_.rend()) throw std::logic_error("rank " + std::to_string(rank) + " was never started");
  return *found;
}

RankRun& KillableJob::start(int rank, const Start& start) {
  const std::string number = std::to_string(runs_.size());
  launch_ = start.launch;
  RankRun run;
  run.rank = rank;
  run.launch = start.launch;
  run.first_step = start.first_step;
  run.log = directory_ / ("log" + number);
  run.step_log = directory_ / ("steps" + number);
  run.started = wall_now();
  std::vector<std::string> command = small_training(config_path);
  command.insert(command.end(), {"--uncoupled", "--step-log", run.step_log.string(), "--start-iteration",
                                 std::to_string(start.first_step)});
  command.insert(command.end(), start.train.begin(), start.train.end());
  const int world = start.world == 0 ? world_ : start.world;
  const auto environment = environment_of(rank, world, start);
  run.pid = hosts_ ? hosts_->start(rank * hosts() / world, command, run.log, environment)
                   : start_program(command, run.log, environment);
  if (run.pid <= 0) throw std::runtime_error("cannot start rank " + std::to_string(rank));
  run.pid_on_host = pid_on_host_of(run.pid);
  runs_.push_back(std::move(run));
  return runs_.back();
}

std::map<std::string, std::string> KillableJob::environment_of(int rank, int world,
                                                               const Start& start) const {
  std::map<std::string, std::string> environment{{"RANK", std::to_string(rank)},
                                                 {"WORLD_SIZE", std::to_string(world)},
                                                 {"GRADMON_RUN_ID", start.launch},
                                                 {"MONITOR_OUTPUT_DIR", output_dir(start.launch).string()},
                                                 {"XDG_RUNTIME_DIR", runtime_directory().string()},
                                                 {"DYNAMIC_MONITOR", "True"}};
  if (!hosts_) return environment;
  environment["LOCAL_WORLD_SIZE"] = std::to_string(world / hosts());
  environment["MASTER_ADDR"] = HostNetwork::address(0);
  environment["GRADMON_STORE"] = store_->host() + ":" + std::to_string(store_->port());
  return environment;
}

void KillableJob::start_all(const Start& start) {
  const int world = start.world == 0 ? world_ : start.world;
  for (int rank = 0; rank < world; ++rank) this->start(rank, start);
}

void KillableJob::stop(RankRun& run) {
  if (!run.running()) return;
  run.stopped.emplace_back(monotonic_us(), INT64_MAX);
  ::kill(run.pid, SIGSTOP);
  int status = 0;
  if (waitpid(run.pid, &status, WUNTRACED) == run.pid && !WIFSTOPPED(status)) run.code = exit_code_of(status);
}

void KillableJob::resume(RankRun& run) {
  if (!run.running()) return;
  ::kill(run.pid, SIGCONT);
  run.stopped.back().second = monotonic_us();
}

void KillableJob::kill(RankRun& run) {
  if (!run.running()) return;
  ::kill(run.pid, SIGKILL);
  int status = 0;
  waitpid(run.pid, &status, 0);
  run.code = exit_code_of(status);
  run.killed = *run.code == 128 + SIGKILL;
  run.ended = monotonic_us();
}

void KillableJob::kill_all() {
  for (RankRun& run : runs_) {
    if (run.running()) ::kill(run.pid, SIGKILL);
  }
  for (RankRun& run : runs_) kill(run);
}

void KillableJob::collect_exit_codes() {
  for (RankRun& run : runs_) wait(run, std::chrono::milliseconds(0));
}

std::optional<int> KillableJob::wait(RankRun& run, std::chrono::milliseconds at_most) {
  eventually(
      [&] {
        int status = 0;
        if (run.running() && waitpid(run.pid, &status, WNOHANG) == run.pid) run.code = exit_code_of(status);
        return !run.running();
      },
      at_most);
  return run.code;
}

fs::path KillableJob::runtime_directory() const {
  return hosts_ || config_disk_ ? directory_.path() / "run" : directory_.path();
}

fs::path KillableJob::hub_directory() const {
  return runtime_directory() / "gradmon" / job_file_name(launch_);
}

std::vector<pid_t> KillableJob::hubs(int host) const {
  std::vector<pid_t> found = hubs_below(hub_directory());
  const auto elsewhere = [&](pid_t hub) { return hosts_ && !hosts_->runs(host, hub); };
  found.erase(std::remove_if(found.begin(), found.end(), elsewhere), found.end());
  return found;
}

std::optional<pid_t> KillableJob::hub(int host) const {
  const auto found = hubs(host);
  if (found.empty()) return std::nullopt;
  return found.front();
}

void KillableJob::signal_hub(int signal, int host) const {
  if (const auto pid = hub(host)) ::kill(*pid, signal);
}

void KillableJob::kill_hub(bool directory_too, int host) const {
  const auto pid = hub(host);
  if (!pid) return;
  // Before the kill: a rank starts the next hub at once, and it must find nothing.
  if (directory_too) ::kill(*pid, SIGSTOP);
  if (directory_too) fs::remove_all(hosts_ ? hosts_->path_from_test(host, hub_directory()) : hub_directory());
  ::kill(*pid, SIGKILL);
  eventually([&] { return ::kill(*pid, 0) != 0 || hub(host) != pid; });
}

CommandReply KillableJob::ask(Command command, std::chrono::milliseconds at_most) {
  if (command.request_id.empty()) command.request_id = random_hex(8);
  CommandReply reply;
  reply.outcome = CommandOutcome::failed;
  const fs::path socket = hub_directory() / "hub.sock";
  CommandClient client("ipc://" + (hosts_ ? hosts_->path_from_test(0, socket) : socket).string());
  if (auto answer = client.ask(command, at_most)) reply = std::move(*answer);
  if (command.verb == CommandVerb::status && !reply.status) reply.status = Status{};
  return reply;
}

CommandReply KillableJob::ask(CommandVerb verb) {
  Command command;
  command.verb = verb;
  command.by = "tester";
  return ask(std::move(command));
}

Status KillableJob::status() {
  Status status = *ask(CommandVerb::status).status;
  if (!status.epoch.empty()) epochs_[launch_] = status.epoch;
  return status;
}

std::vector<HistoryEntry> KillableJob::history() {
  if (epochs_.count(launch_) == 0) status();
  return ask(CommandVerb::history).history;
}

std::string KillableJob::logs() const {
  std::string all;
  for (const RankRun& run : runs_) {
    all += "--- rank " + std::to_string(run.rank) + " of launch " + run.launch + ", pid " +
           std::to_string(run.pid) + (run.running() ? "" : ", ended " + std::to_string(*run.code)) + "\n" +
           read_text(run.log);
  }
  const fs::path log = hub_directory() / "hub.log";
  for (int host = 0; host < hosts(); ++host) {
    const fs::path path = hosts_ ? hosts_->path_from_test(host, log) : log;
    all += "--- hub of host " + std::to_string(host) + "\n" + read_text(path);
  }
  return all;
}

}  // namespace gradmon
