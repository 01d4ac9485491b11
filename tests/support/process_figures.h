// SPDX-License-Identifier: Apache-2.0
// What the kernel says of another process of this user's. 0 where it has gone.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>

namespace gradmon {

// Who listens at a Unix socket, as a hub does; -1: nobody.
pid_t listener_of(const std::filesystem::path& socket);

double resident_mib(pid_t process);
std::size_t descriptors_of(pid_t process);
std::size_t threads_of(pid_t process);
// Its TCP sockets, listening or connected; or the connected ones alone.
enum class TcpSockets { all, connected };
std::size_t tcp_sockets_of(pid_t process, TcpSockets which = TcpSockets::all);
// The soft limit of descriptors.
std::size_t descriptor_limit_of(pid_t process);

}  // namespace gradmon
