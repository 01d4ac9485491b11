// SPDX-License-Identifier: Apache-2.0
#include "tests/hosts/hosts_job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <stdexcept>

#include "control/net/command_client.h"
#include "control/net/discovery.h"
#include "control/net/messages.h"
#include "control/net/process_identity.h"
#include "runtime/torch_store.h"
#include "tests/runtime/real_job.h"
#include "tools/demo_report/outcome.h"

namespace gradmon {
namespace {

using Variables = std::map<std::string, std::string>;

}  // namespace

HostsJob::HostsJob(const Options& options, const HostNetwork* network)
    : options_(options), launch_(random_hex(8)) {
  save(options_.config);
  if (network != nullptr) {
    keys_ = directory_ / "keys";
    if (run_program({program("gradmonctl"), "keygen", keys_->string()}, directory_ / "keygen") != 0)
      throw std::runtime_error(read_text(directory_ / "keygen"));
  }
  if (options_.store)
    store_ = std::make_unique<StoreServer>(network != nullptr ? HostNetwork::switch_address() : "127.0.0.1");
  for (int rank = 0; rank < options_.world; ++rank) start(rank, network);
}

HostsJob::~HostsJob() { end(); }

void HostsJob::start(int rank, const HostNetwork* network) {
  Variables environment{{"RANK", std::to_string(rank)},
                        {"WORLD_SIZE", std::to_string(options_.world)},
                        {"GRADMON_RUN_ID", launch_},
                        {"DYNAMIC_MONITOR", "True"},
                        {"XDG_RUNTIME_DIR", directory_.path().string()},
                        {"MONITOR_OUTPUT_DIR", output_dir(rank).string()},
                        {"GRADMON_STORE", "none"}};
  if (store_) environment["GRADMON_STORE"] = store_->host() + ":" + std::to_string(store_->port());
  // Else only a store could tell where rank 0 is.
  if (!store_) environment["GRADMON_ENDPOINT"] = "ipc://" + (directory_ / "control").string();
  std::vector<std::string> command;
  if (network != nullptr) {
    environment["GRADMON_ENDPOINT"] = "tcp://" + HostNetwork::address(0) + ":*";
    environment["GRADMON_KEYS"] = keys_->string();
    command = network->on_host(rank);
  }
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

std::filesystem::path HostsJob::output_dir(int rank) const {
  return directory_ / (options_.shared_directory ? "out" : "out" + std::to_string(rank));
}

void HostsJob::save(const std::string& config) const {
  const auto beside = directory_ / "beside";
  write_text(beside, config);
  std::filesystem::rename(beside, config_path());
}

CommandReply HostsJob::ask(Command command, std::chrono::milliseconds at_most) {
  if (command.request_id.empty()) command.request_id = random_hex(8);
  CommandReply reply;
  reply.outcome = CommandOutcome::failed;
  eventually(
      [&] {
        const auto job = newest_job(read_jobs(output_dir(0)).value_or(std::vector<JobEntry>{}), launch_);
        if (!job) return false;
        std::optional<ClientKeys> keys;
        if (keys_) keys = std::move(read_operator_keys(*keys_).value());
        auto answer = CommandClient(job->endpoint, std::move(keys)).ask(command, std::chrono::seconds(5));
        if (answer) reply = std::move(*answer);
        return answer.has_value();
      },
      at_most);
  return reply;
}

CommandReply HostsJob::ask(CommandVerb verb) {
  Command command;
  command.verb = verb;
  command.by = "tester";
  return ask(command);
}

bool HostsJob::together(std::chrono::milliseconds at_most) {
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

std::vector<Verdict> HostsJob::commits() {
  if (!store_ || options_.shared_directory) return commits_in_register(output_dir(0));
  TorchStore store({store_->host(), store_->port(), std::chrono::seconds(10)});
  const auto job = get_job(store, launch_);
  std::vector<Verdict> verdicts;
  if (!job || !*job) return verdicts;
  for (int revision = 1;; ++revision) {
    const auto bytes = store.get("gradmon/" + (*job)->epoch + "/" + std::to_string(revision));
    if (!bytes || !*bytes) return verdicts;
    auto verdict = decode_verdict(**bytes).value();
    if (verdict.commit()) verdicts.push_back(std::move(verdict));
  }
}

std::string HostsJob::logs() const {
  std::string all;
  for (int rank = 0; rank < options_.world; ++rank) all += "rank " + std::to_string(rank) + ":\n" + log(rank);
  return all;
}

void HostsJob::end() {
  for (const pid_t rank : ranks_) kill(rank, SIGKILL);
  for (const pid_t rank : ranks_) waitpid(rank, nullptr, 0);
  ranks_.clear();
}

}  // namespace gradmon
