// SPDX-License-Identifier: Apache-2.0
// Figures of another process of the same user, from /proc; 0 if that process has ended.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <vector>

namespace gradmon {

// The process that listens on a Unix socket, as a hub does; -1: none.
pid_t listener_of(const std::filesystem::path& socket);

// The hubs whose directory begins with `place`.
std::vector<pid_t> hubs_below(const std::filesystem::path& place);

double resident_mib(pid_t process);
std::size_t descriptors_of(pid_t process);
std::size_t threads_of(pid_t process);
// The number of all its TCP sockets, listening ones too, or of the connected ones only.
enum class TcpSockets { all, connected };
std::size_t tcp_sockets_of(pid_t process, TcpSockets which = TcpSockets::all);
// The soft limit on open descriptors.
std::size_t descriptor_limit_of(pid_t process);

}  // namespace gradmon
