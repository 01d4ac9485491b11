// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/hub/rendezvous/job_entry.h"
#include "control/wire/command.h"
#include "tests/support/store_server.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/hosts/host_network.h"

namespace gradmon {

// Real gradmon-train processes, one on each host, uncoupled: what keeps them
// together is the agreement alone. Each host has a directory of its own for its
// hub's socket, so that no two share a hub.
class HostsJob {
  const TemporaryDirectory directory_;  // Keep first: the paths are below it.

 public:
  // How the hubs of the other hosts find the lead. With `endpoint` and without keys by
  // hand training's store tells the key.
  enum class Rendezvous { endpoint, directory, store, none };

  struct Options {
    int world = 2;
    std::string config = "{}";
    // directory: one output directory for all, else each host has its own.
    Rendezvous rendezvous = Rendezvous::endpoint;
    bool keys_by_hand = false;
    bool launcher_says_hosts = true;  // LOCAL_WORLD_SIZE
  };

  // `network`: where its hosts are; null: all on this one.
  HostsJob(const Options& options, const HostNetwork* network);
  // Kills what lives.
  ~HostsJob();
  HostsJob(const HostsJob&) = delete;
  HostsJob& operator=(const HostsJob&) = delete;

  std::filesystem::path directory() const { return directory_.path(); }
  std::filesystem::path config_path() const { return directory_ / "config.json"; }
  std::filesystem::path output_dir(int rank) const;
  const std::filesystem::path& keys() const { return keys_; }
  JobEntry entry() const;  // that of the lead hub; empty where there is none
  // "tcp://ADDRESS:PORT", as the lead hub tells it in its entry; "" before it listens.
  std::string address() const { return entry().address; }
  pid_t hub(int host) const;

  // Asks the hub of that host over its Unix socket; repeats while nobody answers.
  CommandReply ask(Command command, int host = 0, std::chrono::milliseconds at_most = std::chrono::seconds(60));
  CommandReply ask(CommandVerb verb, int host = 0);
  Status status() { return ask(CommandVerb::status).status.value_or(Status{}); }
  std::vector<HistoryEntry> history() { return ask(CommandVerb::history).history; }
  // Saves a config as the user would, on rank 0's host: no network is needed.
  void save(const std::string& config) const;
  // Until the newest change is in force on all ranks, whatever it took.
  bool together(std::chrono::milliseconds at_most = std::chrono::seconds(90));

  std::string log(int rank) const { return read_text(directory_ / ("log" + std::to_string(rank))); }
  std::string logs() const;  // of ranks and hubs
  bool trains(int rank) const;
  // Stops all ranks and hubs by SIGKILL, and waits for the ranks.
  void end();

 private:
  void start(int rank, const HostNetwork* network);
  std::filesystem::path runtime_directory(int host) const;
  std::filesystem::path socket(int host) const;

  const Options options_;
  const std::string launch_;
  std::filesystem::path keys_;  // "": none
  std::unique_ptr<StoreServer> store_;  // null: none
  std::vector<pid_t> ranks_;
};

}  // namespace gradmon
