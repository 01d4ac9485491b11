// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include "control/hub/transport/stream_server.h"
#include "control/wire/command.h"

namespace gradmon {

// Stands in for a hub in tests that run gradmonctl as a process: serves a job's socket, and
// answers every command with `status`. The answers to cancel and evict also have a message.
// gradmonctl finds the hub if its XDG_RUNTIME_DIR is `runtime_dir`, whose path must be short.
// A thread of the hub's own receives the commands; asked() may be called from any thread.
class FakeHub {
 public:
  // `refusal`: if not empty, the message of its answers, which have no status then.
  FakeHub(const std::filesystem::path& runtime_dir, Status status, std::string refusal = "");
  ~FakeHub();
  FakeHub(const FakeHub&) = delete;
  FakeHub& operator=(const FakeHub&) = delete;

  std::string endpoint() const;
  std::vector<Command> asked() const;

 private:
  void serve();
  void answer(Peer peer, const std::string& bytes);

  const Status status_;
  const std::string refusal_;
  std::filesystem::path socket_;
  std::unique_ptr<StreamServer> server_;  // used by thread_ alone after its start

  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  std::vector<Command> asked_;  // guarded by mutex_
  std::thread thread_;          // Keep last: it uses the members above.
};

}  // namespace gradmon
