// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/agree/plan.h"
#include "control/net/command.h"
#include "tests/hosts/host_network.h"
#include "tests/runtime/store_server.h"
#include "tests/temporary_directory.h"

namespace gradmon {

// Real gradmon-train processes, one on each host, uncoupled: what keeps them
// together is the agreement alone. A store that none of them serves is at the
// switch, as a launcher's would be.
class HostsJob {
  const TemporaryDirectory directory_;  // Keep first: the paths are below it.

 public:
  struct Options {
    int world = 2;
    std::string config = "{}";
    bool shared_directory = false;
    bool store = true;
  };

  // `network`: where its hosts are; null: all ranks on this host, with a Unix socket.
  HostsJob(const Options& options, const HostNetwork* network);
  // Kills what lives.
  ~HostsJob();
  HostsJob(const HostsJob&) = delete;
  HostsJob& operator=(const HostsJob&) = delete;

  std::filesystem::path config_path() const { return directory_ / "config.json"; }
  std::filesystem::path output_dir(int rank) const;
  StoreServer& store() { return *store_; }

  // Asks rank 0; repeats while nobody answers.
  CommandReply ask(Command command, std::chrono::milliseconds at_most = std::chrono::seconds(60));
  CommandReply ask(CommandVerb verb);
  Status status() { return ask(CommandVerb::status).status.value_or(Status{}); }
  std::vector<HistoryEntry> history() { return ask(CommandVerb::history).history; }
  // Saves a config as the user would, on rank 0's host: no network is needed.
  void save(const std::string& config) const;
  // Until the newest change is in force on all ranks, whatever it took.
  bool together(std::chrono::milliseconds at_most = std::chrono::seconds(90));
  // The plans that the register holds, wherever it is.
  std::vector<Verdict> commits();

  std::string log(int rank) const { return read_text(directory_ / ("log" + std::to_string(rank))); }
  std::string logs() const;
  // Stops all ranks by SIGKILL, and waits for them.
  void end();

 private:
  void start(int rank, const HostNetwork* network);

  const Options options_;
  const std::string launch_;
  std::optional<std::filesystem::path> keys_;
  std::unique_ptr<StoreServer> store_;  // null: none
  std::vector<pid_t> ranks_;
};

}  // namespace gradmon
