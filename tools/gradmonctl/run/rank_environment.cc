// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/run/rank_environment.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <random>

namespace gradmon {
namespace {

// The lowest port that the system assigns for port 0: 32768 unless the host is configured otherwise.
int lowest_given_port() {
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int lowest = 0;
  return range >> lowest ? lowest : 32768;
}

// Binds `port` (0: any) on 127.0.0.1 for a moment. Returns the bound port; on none, errno has the cause.
std::optional<int> bound_port(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int cause = errno;
  close(fd);
  errno = cause;
  return bound ? std::optional<int>(ntohs(address.sin_port)) : std::nullopt;
}

}  // namespace

tl::expected<int, std::string> free_port() {
  constexpr int first = 10'000;
  constexpr int tries = 100;
  const int end = lowest_given_port();
  std::random_device random;
  for (int i = 0; i < tries && first < end; ++i) {
    if (const auto port = bound_port(std::uniform_int_distribution<int>(first, end - 1)(random)))
      return *port;
  }
  if (const auto port = bound_port(0)) return *port;
  return tl::make_unexpected(std::string("cannot find a free port on 127.0.0.1: ") + std::strerror(errno));
}

std::vector<std::string> rank_environment(const std::vector<std::string>& inherited, int rank,
                                          const LaunchIdentity& launch) {
  std::map<std::string, std::string> variables{{"DYNAMIC_MONITOR", "True"}, {"USE_LIBUV", "0"}};
  for (const std::string& entry : inherited) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(rank);
  variables["WORLD_SIZE"] = variables["LOCAL_WORLD_SIZE"] = std::to_string(launch.ranks);
  variables["MASTER_ADDR"] = "127.0.0.1";
  variables["MASTER_PORT"] = std::to_string(launch.master_port);
  variables["GRADMON_RUN_ID"] = launch.run_id;
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

}  // namespace gradmon
