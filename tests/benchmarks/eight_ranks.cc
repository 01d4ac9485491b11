// SPDX-License-Identifier: Apache-2.0
#include "tests/benchmarks/eight_ranks.h"

#include <fcntl.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>

#include "control/client/command_client.h"
#include "control/host/process_identity.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;

void write_in_place(const std::filesystem::path& path, const std::string& text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
  const bool written =
      file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (file >= 0) ::close(file);
  if (!written) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace

std::string EightRanks::config_text(bool on, int number) {
  return std::string(R"({"dynamic_on": )") + (on ? "true" : "false") +
         R"(, "collect_times": 1000000, "lookahead_steps": 1, "note": )" + std::to_string(number) + "}\n";
}

EightRanks::EightRanks(std::chrono::microseconds pace, bool on)
    : pace_(pace), job_(config_text(on, 0)), config_(job_.config()) {
  AgentOptions options;
  options.world_size = kRanks;
  options.launch_id = random_hex(4);
  options.output_dir = job_.output();
  options.lead.config_path = config_.string();
  socket_ = make_job_socket(options.launch_id);
  zero_ = Clock::now();
  for (int rank = 0; rank < kRanks; ++rank) {
    options.rank = Rank{rank};
    ranks_.push_back(std::make_unique<LocalRank>(options, zero_, pace, times_));
  }
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (on ? status().state != "on" : status().reason != "never turned on") {
    if (Clock::now() > deadline) throw std::runtime_error("eight ranks did not meet");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

CommandReply EightRanks::ask(CommandVerb verb) const {
  Command command;
  command.verb = verb;
  command.request_id = random_hex(8);
  command.by = "gradmon-bench";
  const auto reply = CommandClient("ipc://" + socket_.string()).ask(command, std::chrono::seconds(20));
  if (!reply) throw std::runtime_error(reply.error());
  if (reply->outcome != CommandOutcome::done) throw std::runtime_error(reply->message);
  return *reply;
}

SteadyTime save_by_rename(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path aside = path.string() + ".new";
  write_in_place(aside, text);
  const SteadyTime begin = Clock::now();
  std::filesystem::rename(aside, path);
  return begin;
}

SteadyTime save_in_place(const std::filesystem::path& path, const std::string& text) {
  const SteadyTime begin = Clock::now();
  write_in_place(path, text);
  return begin;
}

}  // namespace gradmon
