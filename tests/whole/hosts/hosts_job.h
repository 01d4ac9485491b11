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

// Real gradmon-train processes, one on each host, uncoupled: only the agreement keeps them
// together. Each host has its own directory for its hub's socket, so that no two hosts
// share a hub.
class HostsJob {
  const TemporaryDirectory directory_;  // Keep first: the paths are below it.

 public:
  // How the hubs of the other hosts find the lead hub. With `endpoint` and without keys made
  // by hand they get the key from training's store.
  enum class Rendezvous { endpoint, directory, store, none };

  struct Options {
    int world = 2;
    std::string config = "{}";
    // directory: all hosts share one output directory; else each host has its own.
    Rendezvous rendezvous = Rendezvous::endpoint;
    bool keys_by_hand = false;         // gradmonctl keygen
    bool set_local_world_size = true;  // sets LOCAL_WORLD_SIZE
  };

  // `network`: its hosts; null: all ranks run on this host.
  HostsJob(const Options& options, const HostNetwork* network);
  // Calls end().
  ~HostsJob();
  HostsJob(const HostsJob&) = delete;
  HostsJob& operator=(const HostsJob&) = delete;

  std::filesystem::path directory() const { return directory_.path(); }
  std::filesystem::path config_path() const { return directory_ / "config.json"; }
  std::filesystem::path output_dir(int rank) const;
  const std::filesystem::path& keys() const { return keys_; }
  JobEntry entry() const;  // of the lead hub; empty if there is none
  // "tcp://ADDRESS:PORT" of the lead hub, from its entry; "" before it listens.
  std::string address() const { return entry().address; }
  pid_t hub(int host) const;  // -1: none listens

  // Asks the hub of that host over its Unix socket; repeats until it answers.
  CommandReply ask(Command command, int host = 0,
                   std::chrono::milliseconds at_most = std::chrono::seconds(60));
  CommandReply ask(CommandVerb verb, int host = 0);
  Status status() { return ask(CommandVerb::status).status.value_or(Status{}); }
  std::vector<HistoryEntry> history() { return ask(CommandVerb::history).history; }
  // Saves a config as the user would, on rank 0's host, without the network.
  void save(const std::string& config) const;
  // Waits until the newest change is committed and applied by all ranks.
  bool wait_until_agreed(std::chrono::milliseconds at_most = std::chrono::seconds(90));

  std::string log(int rank) const { return read_text(directory_ / ("log" + std::to_string(rank))); }
  std::string logs() const;  // of ranks and hubs
  bool is_running(int rank);
  // Kills all ranks and hubs (SIGKILL), and waits for the ranks.
  void end();

 private:
  void start(int rank, const HostNetwork* network);
  std::filesystem::path runtime_directory(int host) const;
  std::filesystem::path socket(int host) const;

  const Options options_;
  const std::string launch_;
  std::filesystem::path keys_;          // "": none
  std::unique_ptr<StoreServer> store_;  // null: none
  std::vector<pid_t> ranks_;            // -1: it has ended
};

}  // namespace gradmon
