// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/run/rank_environment.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

namespace gradmon {

tl::expected<int, std::string> free_port() {
  const auto failed = [](const char* what) {
    return tl::make_unexpected(std::string("cannot find a free port on 127.0.0.1: ") + what + ": " +
                               std::strerror(errno));
  };
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return failed("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int cause = errno;
  close(fd);
  errno = cause;
  if (!bound) return failed("bind");
  return ntohs(address.sin_port);
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
