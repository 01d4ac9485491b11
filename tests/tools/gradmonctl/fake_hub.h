// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "control/hub/transport/stream_server.h"
#include "control/wire/command.h"

namespace gradmon {

// A hub as gradmonctl sees one: it serves a job's socket, and answers every command
// with `status` and a message that names the verb. `runtime_dir` is what
// XDG_RUNTIME_DIR is for the gradmonctl that is to find it. The commands come in on
// a thread of its own.
class FakeHub {
 public:
  FakeHub(const std::filesystem::path& runtime_dir, Status status);
  ~FakeHub();
  FakeHub(const FakeHub&) = delete;
  FakeHub& operator=(const FakeHub&) = delete;

  std::string endpoint() const;
  std::vector<Command> asked() const;

 private:
  void serve();
  void answer(Peer peer, const std::string& bytes);

  const Status status_;
  std::filesystem::path socket_;
  std::unique_ptr<StreamServer> server_;  // the thread's alone, once that runs

  std::atomic<bool> stops_{false};
  mutable std::mutex mutex_;
  std::vector<Command> asked_;  // guarded by mutex_
  std::thread thread_;          // Keep last: it uses what is above.
};

}  // namespace gradmon
