// SPDX-License-Identifier: Apache-2.0
// Two connected Unix stream sockets: one for a FrameStream, one raw, for bytes that
// no FrameStream would send.
#pragma once

#include <sys/socket.h>

#include <stdexcept>
#include <string>
#include <string_view>

#include "control/files/descriptor.h"

namespace gradmon {

struct SocketPair {
  SocketPair() {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
      throw std::runtime_error("no sockets");
    stream_socket.reset(fds[0]);
    raw_socket.reset(fds[1]);
  }

  Descriptor stream_socket;
  Descriptor raw_socket;
};

inline std::string header_of(std::size_t length) {
  std::string header;
  for (int i = 0; i < 4; ++i) header += static_cast<char>((length >> (8 * i)) & 0xffU);
  return header;
}

inline std::string framed(std::string_view frame) { return header_of(frame.size()) + std::string(frame); }

// Sends what fits without waiting. Returns the bytes sent; 0 if the peer has gone or its buffer is full.
inline std::size_t send_raw(const Descriptor& socket, std::string_view bytes) {
  const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent > 0 ? static_cast<std::size_t>(sent) : 0;
}

}  // namespace gradmon
