// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/hosts/hosts_job.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <stdexcept>

#include "control/client/command_client.h"
#include "control/host/job_directory.h"
#include "control/host/process_identity.h"
#include "control/hub/rendezvous/job_entry.h"
#include "tests/support/process_figures.h"
#include "tests/support/real_job.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr char kPort[] = "7741";

}  // namespace

HostsJob::HostsJob(const Options& options, const HostNetwork* network)
    : options_(options), launch_(random_hex(8)) {
  save(options_.config);
  const bool no_keys = options_.rendezvous == Rendezvous::endpoint && !options_.keys_by_hand;
  if (options_.rendezvous == Rendezvous::store || no_keys)
    store_ = std::make_unique<StoreServer>(HostNetwork::switch_address());
  if (options_.keys_by_hand) {
    keys_ = directory_ / "keys";
    if (run_program({program("gradmonctl"), "keygen", keys_.string()}, directory_ / "keygen") != 0)
      throw std::runtime_error(read_text(directory_ / "keygen"));
  }
  for (int rank = 0; rank < options_.world; ++rank) start(rank, network);
}

HostsJob::~HostsJob() { end(); }

fs::path HostsJob::runtime_directory(int host) const { return directory_ / ("run" + std::to_string(host)); }

fs::path HostsJob::socket(int host) const {
  return JobDirectory{runtime_directory(host) / "gradmon" / job_file_name(launch_)}.socket();
}

void HostsJob::start(int rank, const HostNetwork* network) {
  fs::create_directory(runtime_directory(rank));
  fs::permissions(runtime_directory(rank), fs::perms::owner_all);
  std::map<std::string, std::string> environment{{"RANK", std::to_string(rank)},
                                                 {"WORLD_SIZE", std::to_string(options_.world)},
                                                 {"GRADMON_RUN_ID", launch_},
                                                 {"DYNAMIC_MONITOR", "True"},
                                                 {"XDG_RUNTIME_DIR", runtime_directory(rank).string()},
                                                 {"MONITOR_OUTPUT_DIR", output_dir(rank).string()},
                                                 {"MASTER_ADDR", HostNetwork::address(0)},
                                                 {"GRADMON_STORE", "none"}};
  if (options_.set_local_world_size) environment["LOCAL_WORLD_SIZE"] = "1";
  if (options_.rendezvous == Rendezvous::endpoint)
    environment["GRADMON_ENDPOINT"] = "tcp://" + HostNetwork::address(0) + ":" + kPort;
  if (options_.keys_by_hand) environment["GRADMON_KEYS"] = keys_.string();
  if (store_) environment["GRADMON_STORE"] = store_->host() + ":" + std::to_string(store_->port());
  std::vector<std::string> command;
  if (network != nullptr) command = network->host_prefix(rank);
  const std::vector<std::string> train{program("gradmon-train"),
                                       "--config",
                                       config_path().string(),
                                       "--uncoupled",
                                       "--threads",
                                       "1",
                                       "--layers",
                                       "1",
                                       "--width",
                                       "8",
                                       "--context",
                                       "8",
                                       "--batch",
                                       "1",
                                       "--step-ms",
                                       "20",
                                       "--steps",
                                       "100000000"};
  command.insert(command.end(), train.begin(), train.end());
  ranks_.push_back(start_program(command, directory_ / ("log" + std::to_string(rank)), environment));
}

fs::path HostsJob::output_dir(int rank) const {
  const bool shared = options_.rendezvous == Rendezvous::directory;
  return directory_ / (shared ? "out" : "out" + std::to_string(rank));
}

JobEntry HostsJob::entry() const { return find_entry(output_dir(0), launch_).value_or(JobEntry{}); }

pid_t HostsJob::hub(int host) const { return listener_of(socket(host)); }

void HostsJob::save(const std::string& config) const {
  const auto beside = directory_ / "beside";
  write_text(beside, config);
  fs::rename(beside, config_path());
}

CommandReply HostsJob::ask(Command command, int host, std::chrono::milliseconds at_most) {
  if (command.request_id.empty()) command.request_id = random_hex(8);
  CommandReply reply;
  reply.outcome = CommandOutcome::failed;
  CommandClient client("ipc://" + socket(host).string());
  if (auto answer = client.ask(command, at_most)) reply = std::move(*answer);
  return reply;
}

CommandReply HostsJob::ask(CommandVerb verb, int host) {
  Command command;
  command.verb = verb;
  command.by = "tester";
  return ask(command, host);
}

bool HostsJob::wait_until_agreed(std::chrono::milliseconds at_most) {
  return eventually(
      [&] {
        const auto entries = history();
        if (entries.empty()) return false;
        const HistoryEntry& newest = entries.back();
        return newest.final && newest.verdict == "commit" &&
               newest.applied.size() == static_cast<std::size_t>(options_.world);
      },
      at_most);
}

std::string HostsJob::logs() const {
  std::string all;
  for (int rank = 0; rank < options_.world; ++rank) {
    const std::string name = std::to_string(rank);
    all += "rank " + name + ":\n" + log(rank);
    all += "hub of host " + name + ":\n" + read_text(socket(rank).parent_path() / "hub.log");
  }
  return all;
}

bool HostsJob::is_running(int rank) {
  pid_t& process = ranks_[static_cast<std::size_t>(rank)];
  if (process > 0 && waitpid(process, nullptr, WNOHANG) != 0) process = -1;
  return process > 0;
}

void HostsJob::end() {
  for (int host = 0; host < static_cast<int>(ranks_.size()); ++host) {
    if (const pid_t hub = listener_of(socket(host)); hub > 0) kill(hub, SIGKILL);
  }
  for (const pid_t rank : ranks_) {
    if (rank > 0) kill(rank, SIGKILL);
  }
  for (const pid_t rank : ranks_) {
    if (rank > 0) waitpid(rank, nullptr, 0);
  }
  ranks_.clear();
}

}  // namespace gradmon
