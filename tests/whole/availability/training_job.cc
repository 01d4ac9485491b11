// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/availability/training_job.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include "tests/support/process_figures.h"
#include "tests/support/real_job.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kConfig =
    "{\n  \"wg_distribution\": true,\n  \"dynamic_on\": false,\n  \"collect_times\": 1000000,\n"
    "  \"step_interval\": 1,\n  \"ops\": [\"norm\"],\n  \"max_wait\": 2\n}\n";
constexpr std::int64_t kRunningAfterSteps = 5;  // steps of each rank before the job counts as running

void make_directory(const fs::path& path, uid_t user) {
  fs::create_directories(path);
  if (chmod(path.c_str(), 0700) != 0 || (user != 0 && chown(path.c_str(), user, user) != 0))
    throw std::runtime_error("cannot prepare " + path.string());
}

void link_programs(const fs::path& to) {
  fs::create_directory(to);
  for (const char* name : {"availability-trainer", "gradmon-hub", "gradmonctl"}) {
    std::error_code other_file_system;
    fs::create_hard_link(program(name), to / name, other_file_system);
    if (other_file_system) fs::copy_file(program(name), to / name);
  }
}

// True if the descriptor is a Unix stream connected to a socket with the file name of `path`.
// The hub may have bound it by another name of the directory: see bind_unix().
bool is_connected_to(int fd, const fs::path& path) {
  sockaddr_un peer{};
  socklen_t length = sizeof peer;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0 || peer.sun_family != AF_UNIX)
    return false;
  return fs::path(peer.sun_path).filename() == path.filename();
}

}  // namespace

JobPlaces::JobPlaces(const fs::path& directory, uid_t user)
    : output(directory / "out"),
      config_directory(directory / "config"),
      config(config_directory / "monitor_config.json"),
      runtime(directory / "run"),
      logs(directory / "logs"),
      programs(user == 0 ? fs::path(program("")) : directory / "bin") {
  if (user != 0) {
    fs::permissions(directory, fs::perms(0755));
    link_programs(programs);
  }
  for (const fs::path& path : {output, config_directory, runtime, logs}) make_directory(path, user);
}

TrainingJob::TrainingJob(JobPlaces places, JobOptions options)
    : places_(std::move(places)), options_(std::move(options)) {
  barrier_ = std::make_unique<StepBarrier>(places_.logs / (options_.launch_id + "-barrier"),
                                           StepBarrier::Open::create, options_.world);
}

TrainingJob::~TrainingJob() {
  processes_.clear();
  ended_processes_.clear();
  // A hub ends by itself after its last rank, unless it is stopped.
  if (const pid_t left = hub(); left > 0) kill(left, SIGKILL);
}

std::map<std::string, std::string> TrainingJob::environment(int rank) const {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(options_.world)},
          {"GRADMON_RUN_ID", options_.launch_id},
          {"GRADMON_HUB", (places_.programs / "gradmon-hub").string()},
          {"MONITOR_OUTPUT_DIR", places_.output.string()},
          {"XDG_RUNTIME_DIR", places_.runtime.string()},
          {"DYNAMIC_MONITOR", "True"},
          {"OMP_NUM_THREADS", "1"}};
}

void TrainingJob::start_all() {
  if (!fs::exists(places_.config)) {
    write_text(places_.config, kConfig);
    if (options_.user != 0 && chown(places_.config.c_str(), options_.user, options_.user) != 0)
      throw std::runtime_error("cannot give the config away");
  }
  for (int rank = 0; rank < options_.world; ++rank) start(rank, 0);
}

void TrainingJob::start(int rank, std::int64_t first_step) {
  const std::string name = options_.launch_id + "-" + std::to_string(started_++);
  RankProcess rank_process;
  rank_process.steps = places_.logs / ("steps-" + name);
  rank_process.output = places_.logs / ("output-" + name);
  ProcessOptions child;
  if (const auto words = options_.command_prefix.find(rank); words != options_.command_prefix.end())
    child.command = words->second;
  const std::vector<std::string> trainer{(places_.programs / "availability-trainer").string(),
                                         "--config",
                                         places_.config.string(),
                                         "--step-log",
                                         rank_process.steps.string(),
                                         "--barrier",
                                         (places_.logs / (options_.launch_id + "-barrier")).string(),
                                         "--step-ms",
                                         std::to_string(options_.step_time.count()),
                                         "--start-iteration",
                                         std::to_string(first_step)};
  child.command.insert(child.command.end(), trainer.begin(), trainer.end());
  if (const auto words = options_.trainer_arguments.find(rank); words != options_.trainer_arguments.end())
    child.command.insert(child.command.end(), words->second.begin(), words->second.end());
  child.environment = environment(rank);
  child.output = rank_process.output;
  child.error = options_.stderr_descriptor;
  child.user = options_.user;
  rank_process.process = std::make_unique<ChildProcess>(child);
  if (const auto before = processes_.find(rank); before != processes_.end())
    ended_processes_.push_back(std::move(before->second));
  processes_[rank] = std::move(rank_process);
}

bool TrainingJob::wait_until_running() {
  return eventually(
      [&] {
        for (int rank = 0; rank < options_.world; ++rank) {
          if (barrier_->step(rank) < kRunningAfterSteps) return false;
        }
        const auto now = status();
        if (!now.is_object()) return false;
        const auto& ranks = now.at("ranks");
        return std::all_of(ranks.begin(), ranks.end(),
                           [](const auto& rank) { return rank.at("state") != "absent"; });
      },
      seconds(120));
}

void TrainingJob::stop_rank(int rank) {
  RankProcess& stopped = rank_process(rank);
  stopped.stopped.emplace_back(monotonic_us(), INT64_MAX);
  stopped.process->signal(SIGSTOP);
}

void TrainingJob::continue_rank(int rank) {
  RankProcess& stopped = rank_process(rank);
  stopped.process->signal(SIGCONT);
  stopped.stopped.back().second = monotonic_us();
}

void TrainingJob::kill_rank(int rank) {
  rank_process(rank).process->signal(SIGKILL);
  rank_process(rank).process->wait(seconds(60));
  barrier_->leave(rank);
}

bool TrainingJob::cut_connection(int rank) {
  const pid_t pid = rank_process(rank).process->pid();
  const int process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  bool cut = false;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    const int fd =
        static_cast<int>(syscall(SYS_pidfd_getfd, process, std::stoi(entry.path().filename().string()), 0));
    if (fd < 0) continue;
    if (is_connected_to(fd, socket())) cut = shutdown(fd, SHUT_RDWR) == 0;
    close(fd);
  }
  close(process);
  return cut;
}

pid_t TrainingJob::hub() const {
  const auto found = hubs_below(job_directory());
  return found.empty() ? -1 : found.front();
}

void TrainingJob::signal_hub(int number) const {
  if (const pid_t found = hub(); found > 0) kill(found, number);
}

ProcessOptions TrainingJob::gradmonctl_options(std::vector<std::string> words) const {
  ProcessOptions options;
  options.command = {(places_.programs / "gradmonctl").string()};
  options.command.insert(options.command.end(), words.begin(), words.end());
  if (by_socket_) {
    options.command.insert(options.command.end(), {"--endpoint", "ipc://" + socket().string()});
  } else {
    options.command.insert(options.command.end(), {"--output-dir", places_.output.string()});
  }
  options.environment = {{"XDG_RUNTIME_DIR", places_.runtime.string()}};
  options.user = options_.user;
  options.output = places_.logs / "gradmonctl";
  return options;
}

ProcessResult TrainingJob::run_gradmonctl(std::vector<std::string> words, milliseconds at_most) const {
  return run_process(gradmonctl_options(std::move(words)), at_most);
}

nlohmann::json TrainingJob::status() const {
  const ProcessResult answer = run_gradmonctl({"status", "--json"}, seconds(20));
  if (answer.code != 0) return nullptr;
  return nlohmann::json::parse(answer.out, nullptr, false);
}

bool TrainingJob::store_history() {
  const ProcessResult answer = run_gradmonctl({"history", "--json"}, seconds(20));
  const auto history = nlohmann::json::parse(answer.out, nullptr, false);
  if (answer.code != 0 || !history.is_object()) return false;
  for (const auto& entry : history.at("revisions")) {
    if (!entry.at("revision").is_number()) continue;
    for (const auto& [rank, step] : entry.at("applied").items())
      applied_[std::stoi(rank)][step.get<std::int64_t>()] = entry.at("revision").get<std::uint64_t>();
  }
  return true;
}

std::map<int, StepLogContent> TrainingJob::steps() const {
  std::map<int, StepLogContent> all;
  for (const auto& [rank, rank_process] : processes_) all[rank] = read_step_log(rank_process.steps);
  return all;
}

std::map<int, std::optional<int>> TrainingJob::end(milliseconds at_most) {
  barrier_->end_after(barrier_->newest_step() + 5);
  const auto until = std::chrono::steady_clock::now() + at_most;
  std::map<int, std::optional<int>> codes;
  for (auto& [rank, rank_process] : processes_) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
    codes[rank] = rank_process.process->wait(std::max(left, milliseconds(1)));
  }
  return codes;
}

std::string TrainingJob::output() const {
  std::string all;
  for (const auto& entry : fs::directory_iterator(places_.logs)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("output-" + options_.launch_id, 0) == 0)
      all += "--- " + name + "\n" + read_text(entry.path());
  }
  return all + "--- hub.log\n" + read_text(job_directory() / "hub.log");
}

}  // namespace gradmon
