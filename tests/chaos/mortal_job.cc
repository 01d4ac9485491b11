// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/mortal_job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "control/net/command_client.h"
#include "control/net/process_identity.h"
#include "tests/runtime/real_job.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

std::int64_t monotonic_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

MortalJob::MortalJob(int world, const std::string& config)
    : world_(world), links_(std::make_unique<LinkProxy>(directory_ / "control", world)) {
  write_text(config_path, config);
  fs::create_directory(register_dir());
  for (int rank = 0; rank < world; ++rank) {
    fs::create_directory(output_dir(rank));
    restore_register(rank);
  }
}

MortalJob::~MortalJob() { slay_all(); }

Life& MortalJob::life(int rank) {
  const auto found =
      std::find_if(lives_.rbegin(), lives_.rend(), [&](const Life& life) { return life.rank == rank; });
  if (found == lives_.rend()) throw std::logic_error("rank " + std::to_string(rank) + " was never started");
  return *found;
}

Life& MortalJob::start(int rank, const Start& start) {
  const std::string number = std::to_string(lives_.size());
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
  life.pid = start_program(command, life.log,
                           {{"RANK", std::to_string(rank)},
                            {"WORLD_SIZE", std::to_string(world)},
                            {"GRADMON_RUN_ID", start.launch},
                            {"GRADMON_ENDPOINT", rank == 0 ? endpoint() : links_->endpoint(rank)},
                            {"MONITOR_OUTPUT_DIR", output_dir(rank).string()},
                            {"XDG_RUNTIME_DIR", directory_.path().string()},
                            {"DYNAMIC_MONITOR", "True"}});
  lives_.push_back(std::move(life));
  return lives_.back();
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

void MortalJob::cut_register(int rank) { fs::remove(output_dir(rank) / ".gradmon"); }

void MortalJob::restore_register(int rank) {
  fs::create_directory_symlink(register_dir(), output_dir(rank) / ".gradmon");
}

CommandReply MortalJob::ask(Command command, std::chrono::milliseconds at_most) {
  if (command.request_id.empty()) command.request_id = random_hex(8);
  CommandReply reply;
  reply.outcome = CommandOutcome::failed;
  auto answer = CommandClient(endpoint()).ask(command, at_most);
  if (answer) reply = std::move(*answer);
  if (command.verb == CommandVerb::status && !reply.status) reply.status = Status{};
  return reply;
}

Status MortalJob::status() {
  Status status = *ask(CommandVerb::status).status;
  if (!status.epoch.empty()) epochs_[life(0).launch] = status.epoch;
  return status;
}

std::vector<HistoryEntry> MortalJob::history() {
  if (epochs_.count(life(0).launch) == 0) status();
  return ask(CommandVerb::history).history;
}

std::string MortalJob::logs() const {
  std::string all;
  for (const Life& life : lives_) {
    all += "--- rank " + std::to_string(life.rank) + " of launch " + life.launch + ", pid " +
           std::to_string(life.pid) + (life.lives() ? "" : ", ended " + std::to_string(*life.code)) + "\n" +
           read_text(life.log);
  }
  return all;
}

}  // namespace gradmon
