// SPDX-License-Identifier: Apache-2.0
// Unix stream sockets by path. A path of more than 107 bytes does not fit into a socket address; the call
// reaches it through /proc/self/fd of its directory, with one more descriptor. Errors name the path. Any
// thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// Returns a connected, non-blocking, close-on-exec socket; the caller owns it. Never waits: a full
// backlog of the server is an error.
[[nodiscard]] tl::expected<int, std::string> connect_unix(const std::filesystem::path& path);

// Returns a socket bound to `path`, non-blocking, close-on-exec and not listening yet; the caller owns it.
// Its file has mode 0600 regardless of the umask. `path` must not exist.
[[nodiscard]] tl::expected<int, std::string> bind_unix(const std::filesystem::path& path);

// "ipc://PATH".
std::string ipc_endpoint(const std::filesystem::path& socket);
// The path of "ipc://PATH"; none for any other endpoint.
std::optional<std::filesystem::path> ipc_path(const std::string& endpoint);

// The user id of the process that opened the other end of a Unix stream (SO_PEERCRED).
[[nodiscard]] tl::expected<uid_t, std::string> peer_uid(int fd);

}  // namespace gradmon
