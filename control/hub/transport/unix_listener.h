// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

#include "control/files/descriptor.h"

namespace gradmon {

// A Unix socket that listens at a path and lets in this user and root only. Never
// blocks. Who makes one holds the job's lock: a socket of this user's that lies at
// the path was an earlier hub's, and is removed. One thread.
class UnixListener {
 public:
  // peer: `socket` is connected, non-blocking and close-on-exec. refused: one was
  // turned away. nobody: nobody waits. stuck: somebody waits, but the system has
  // nothing to accept with; try again later, poll would return at once.
  struct Accepted {
    enum class Kind { peer, refused, nobody, stuck };

    Kind kind = Kind::nobody;
    Descriptor socket;   // of a peer
    std::string reason;  // of refused and stuck
  };

  [[nodiscard]] static tl::expected<UnixListener, std::string> listen(std::filesystem::path path);
  UnixListener(UnixListener&&) noexcept = default;
  UnixListener& operator=(UnixListener&&) = delete;
  // Removes the path where it still names this socket.
  ~UnixListener();

  int fd() const { return socket_.get(); }
  // Out of descriptors, a connection is accepted with a spare one and closed at
  // once: its client learns, and poll does not report it for ever.
  Accepted accept();
  // Whether the path names this socket.
  bool at_path() const;
  // Binds the path anew where nothing is there. An error where something is: it is
  // another hub's. Connections not yet accepted are lost.
  [[nodiscard]] tl::expected<void, std::string> bind_again();

 private:
  explicit UnixListener(std::filesystem::path path) : path_(std::move(path)) {}
  void open_spare();
  Accepted turn_away();

  std::filesystem::path path_;
  Descriptor socket_;
  dev_t device_ = 0;  // of the path, as bound
  ino_t inode_ = 0;
  Descriptor spare_;
};

}  // namespace gradmon
