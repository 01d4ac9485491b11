// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/chaos/mortal_job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "control/client/command_client.h"
#include "control/host/job_directory.h"
#include "control/host/process_identity.h"
#include "tests/support/real_job.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

std::int64_t monotonic_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// The last of the numbers that a process has, one in each pid namespace around it.
pid_t own_pid_of(pid_t process) {
  const std::string status = read_text("/proc/" + std::to_string(process) + "/status");
  const std::size_t line = status.find("NSpid:");
  if (line == std::string::npos) return process;
  const std::string numbers = status.substr(line, status.find('\n', line) - line);
  return static_cast<pid_t>(std::stol(numbers.substr(numbers.find_last_of(" \t"))));
}

// Of hubs that were started for a directory below `place`.
std::vector<pid_t> hubs_below(const fs::path& place) {
  std::vector<pid_t> found;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc")) {
    const std::string name = process.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string line = read_text(process.path() / "cmdline");
    const std::string program = line.substr(0, line.find('\0'));
    if (fs::path(program).filename() != "gradmon-hub" || line.size() <= program.size()) continue;
    if (line.compare(program.size() + 1, place.string().size(), place.string()) == 0)
      found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

}  // namespace

MortalJob::MortalJob(int world, const std::string& config, int hosts) : world_(world) {
  fs::create_directories(config_path.parent_path());
  if (hosts > 1) {
    if (const std::string why = own_mounts(); !why.empty()) throw std::runtime_error(why);
    config_disk_ = std::make_unique<HangingDisk>(config_path.parent_path());
    hosts_ = std::make_unique<IsolatedHosts>(hosts, runtime_directory());
    store_ = std::make_unique<StoreServer>(HostNetwork::switch_address());
  }
  write_text(config_path, config);
}

MortalJob::~MortalJob() {
  slay_all();
  for (const pid_t hub : hubs_below(directory_.path())) kill(hub, SIGKILL);
}

Life& MortalJob::life(int rank) {
  const auto found =
      std::find_if(lives_.rbegin(), lives_.rend(), [&](const Life& life) { return life.rank == rank; });
  if (found == lives_.rend()) throw std::logic_error("rank " + std::to_string(rank) + " was never started");
  return *found;
}

Life& MortalJob::start(int rank, const Start& start) {
  const std::string number = std::to_string(lives_.size());
  launch_ = start.launch;
  Life life;
  life.rank = rank;
  life.launch = start.launch;
  life.first_step = start.first_step;
  life.log = directory_ / ("log" + number);
  life.step_log = directory_ / ("steps" + number);
  life.started = wall_now();
  std::vector<std::string> command{program("gradmon-train"),
                                   "--config",
                                   config_path.string(),
                                   "--step-log",
                                   life.step_log.string(),
                                   "--start-iteration",
                                   std::to_string(start.first_step)};
  for (const char* argument :
       {"--uncoupled", "--threads", "1", "--layers", "1", "--width", "8", "--context", "8", "--batch", "1"}) {
    command.emplace_back(argument);
  }
  command.insert(command.end(), start.train.begin(), start.train.end());
  const int world = start.world == 0 ? world_ : start.world;
  const auto environment = environment_of(rank, world, start);
  life.pid = hosts_ ? hosts_->start(rank * hosts() / world, command, life.log, environment)
                    : start_program(command, life.log, environment);
  life.own_pid = own_pid_of(life.pid);
  lives_.push_back(std::move(life));
  return lives_.back();
}

std::map<std::string, std::string> MortalJob::environment_of(int rank, int world, const Start& start) const {
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

void MortalJob::start_all(const Start& start) {
  const int world = start.world == 0 ? world_ : start.world;
  for (int rank = 0; rank < world; ++rank) this->start(rank, start);
}

void MortalJob::freeze(Life& life) {
  life.stopped.emplace_back(monotonic_us(), INT64_MAX);
  kill(life.pid, SIGSTOP);
  int status = 0;
  if (waitpid(life.pid, &status, WUNTRACED) == life.pid && !WIFSTOPPED(status)) life.code = code_of(status);
}

void MortalJob::thaw(Life& life) {
  kill(life.pid, SIGCONT);
  life.stopped.back().second = monotonic_us();
}

void MortalJob::slay(Life& life) {
  if (!life.lives()) return;
  kill(life.pid, SIGKILL);
  int status = 0;
  waitpid(life.pid, &status, 0);
  life.code = code_of(status);
  life.ended = monotonic_us();
}

void MortalJob::slay_all() {
  for (Life& life : lives_) {
    if (life.lives()) kill(life.pid, SIGKILL);
  }
  for (Life& life : lives_) slay(life);
}

std::optional<int> MortalJob::wait(Life& life, std::chrono::milliseconds at_most) {
  eventually(
      [&] {
        int status = 0;
        if (life.lives() && waitpid(life.pid, &status, WNOHANG) == life.pid) life.code = code_of(status);
        return !life.lives();
      },
      at_most);
  return life.code;
}

fs::path MortalJob::runtime_directory() const {
  return hosts_ || config_disk_ ? directory_.path() / "run" : directory_.path();
}

fs::path MortalJob::hub_directory() const { return runtime_directory() / "gradmon" / job_file_name(launch_); }

std::vector<pid_t> MortalJob::hubs(int host) const {
  std::vector<pid_t> found = hubs_below(hub_directory());
  const auto elsewhere = [&](pid_t hub) { return hosts_ && !hosts_->runs(host, hub); };
  found.erase(std::remove_if(found.begin(), found.end(), elsewhere), found.end());
  return found;
}

std::optional<pid_t> MortalJob::hub(int host) const {
  const auto found = hubs(host);
  if (found.empty()) return std::nullopt;
  return found.front();
}

void MortalJob::signal_hub(int signal, int host) const {
  if (const auto pid = hub(host)) kill(*pid, signal);
}

void MortalJob::slay_hub(bool directory_too, int host) const {
  const auto pid = hub(host);
  if (!pid) return;
  // Before it has gone, for nobody is to find what it knew.
  if (directory_too) kill(*pid, SIGSTOP);
  if (directory_too) fs::remove_all(hosts_ ? hosts_->seen(host, hub_directory()) : hub_directory());
  kill(*pid, SIGKILL);
  eventually([&] { return kill(*pid, 0) != 0 || hub(host) != pid; });
}

CommandReply MortalJob::ask(Command command, std::chrono::milliseconds at_most) {
  if (command.request_id.empty()) command.request_id = random_hex(8);
  CommandReply reply;
  reply.outcome = CommandOutcome::failed;
  const fs::path socket = hub_directory() / "hub.sock";
  CommandClient client("ipc://" + (hosts_ ? hosts_->seen(0, socket) : socket).string());
  if (auto answer = client.ask(command, at_most)) reply = std::move(*answer);
  if (command.verb == CommandVerb::status && !reply.status) reply.status = Status{};
  return reply;
}

CommandReply MortalJob::ask(CommandVerb verb) {
  Command command;
  command.verb = verb;
  command.by = "tester";
  return ask(std::move(command));
}

Status MortalJob::status() {
  Status status = *ask(CommandVerb::status).status;
  if (!status.epoch.empty()) epochs_[launch_] = status.epoch;
  return status;
}

std::vector<HistoryEntry> MortalJob::history() {
  if (epochs_.count(launch_) == 0) status();
  return ask(CommandVerb::history).history;
}

std::string MortalJob::logs() const {
  std::string all;
  for (const Life& life : lives_) {
    all += "--- rank " + std::to_string(life.rank) + " of launch " + life.launch + ", pid " +
           std::to_string(life.pid) + (life.lives() ? "" : ", ended " + std::to_string(*life.code)) + "\n" +
           read_text(life.log);
  }
  const fs::path log = hub_directory() / "hub.log";
  for (int host = 0; host < hosts(); ++host)
    all += "--- hub of host " + std::to_string(host) + "\n" + read_text(hosts_ ? hosts_->seen(host, log) : log);
  return all;
}

}  // namespace gradmon
