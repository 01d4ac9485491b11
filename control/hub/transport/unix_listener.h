// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

#include "control/files/descriptor.h"

namespace gradmon {

// A Unix socket that listens at a path and accepts only this user and root. Never blocks. The caller holds
// the job's lock, so a socket of this user at the path was left by an earlier hub and is removed. One
// thread.
class UnixListener {
 public:
  // peer: `socket` is connected, non-blocking and close-on-exec. refused: a connection was refused. nobody:
  // no connection waits. stuck: a connection waits, but the system lacks the resources to accept it. poll(2)
  // would return at once, so try again later.
  struct Accepted {
    enum class Kind { peer, refused, nobody, stuck };

    Kind kind = Kind::nobody;
    Descriptor socket;   // peer only
    std::string reason;  // refused and stuck only
  };

  [[nodiscard]] static tl::expected<UnixListener, std::string> listen(std::filesystem::path path);
  UnixListener(UnixListener&&) noexcept = default;
  UnixListener& operator=(UnixListener&&) = delete;
  // Removes the path if it still names this socket.
  ~UnixListener();

  int fd() const { return socket_.get(); }
  // If the process is out of descriptors, accepts a connection with a spare one and closes it at once. So the
  // client notices, and poll(2) does not report the connection forever.
  Accepted accept();
  // True if the path names this socket.
  bool at_path() const;
  // Binds a new socket to the path. An error if a file already exists there: it belongs to another hub.
  // Connections that are not accepted yet are lost.
  [[nodiscard]] tl::expected<void, std::string> bind_again();

 private:
  explicit UnixListener(std::filesystem::path path) : path_(std::move(path)) {}
  void open_spare();
  Accepted turn_away();

  std::filesystem::path path_;
  Descriptor socket_;
  dev_t device_ = 0;  // of the bound path
  ino_t inode_ = 0;
  Descriptor spare_;
};

}  // namespace gradmon
