// SPDX-License-Identifier: Apache-2.0
// Unix stream sockets by path. A path of more than 107 bytes, which a socket
// address cannot hold, is reached through /proc/self/fd of its directory; that
// takes one descriptor for the length of the call. Errors name the path. Any
// thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// A connected, non-blocking, close-on-exec socket: the caller owns it. Never
// waits: where the server's queue of new connections is full, that is an error.
[[nodiscard]] tl::expected<int, std::string> connect_unix(const std::filesystem::path& path);

// A socket bound to `path` with mode 0600 whatever the umask, non-blocking and
// close-on-exec, not listening yet: the caller owns it. Nothing may be at `path`.
[[nodiscard]] tl::expected<int, std::string> bind_unix(const std::filesystem::path& path);

// The user who opened the other end of a Unix stream, as the kernel knows it.
[[nodiscard]] tl::expected<uid_t, std::string> peer_uid(int fd);

}  // namespace gradmon
